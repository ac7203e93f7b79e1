-- The attempts claimed, completed, failed for good and failed to be retried in each of sixty equal
-- parts of a window that ends now, oldest first, and the durations of completed attempts: half, 95
-- and 99 of 100 were not longer. A last row has those of the whole window. $1 maximum blocks of
-- history read, twice, $2 the window, in seconds.
--
-- A partition of history grows at its end, so its last blocks are mostly the newest, and the block
-- where the window begins is found by bisection. Earlier blocks may have new rows too, where rows
-- of an aborted transaction were removed. Of both parts up to $1 blocks in all, evenly spaced, are
-- read as a sample. An index by time would add a cost to every job.
with recursive clock as materialized (
    select c.now, c.now - pg_catalog.make_interval(secs => $2) as since, $2 / 60.0 as step
    from pg_catalog.clock_timestamp() c (now)
),
bound as (
    select
        i.inhrelid as oid,
        pg_catalog.pg_relation_size(i.inhrelid)
            / pg_catalog.current_setting('block_size')::bigint as blocks,
        pg_catalog.regexp_match(
            pg_catalog.pg_get_expr(p.relpartbound, p.oid),
            $re$FROM [(]('([^']+)'|MINVALUE)[)] TO [(]('([^']+)'|MAXVALUE)[)]$re$
        ) as ends
    from pg_catalog.pg_inherits i
    join pg_catalog.pg_class p on p.oid = i.inhrelid
    where i.inhparent = 'trax.run'::regclass
),
part as materialized (
    select b.oid, b.blocks, e.lower, e.upper
    from clock c
    cross join bound b
    cross join lateral (
        select
            coalesce(b.ends[2]::timestamptz, '-infinity') as lower,
            coalesce(b.ends[4]::timestamptz, 'infinity') as upper
    ) e
    where b.blocks > 0
        and e.upper > c.since
        and e.lower <= c.now
),
search as (
    select p.oid, 0::bigint as low, p.blocks as high
    from part p
    union all
    select
        s.oid,
        case when o.is_old then m.middle + 1 else s.low end,
        case when o.is_old then s.high else m.middle end
    from search s
    join part p on p.oid = s.oid
    cross join clock c
    cross join lateral (select (s.low + s.high) / 2 as middle) m
    cross join lateral (
        select exists (
            select
            from trax.run r
            where r.tableoid = s.oid
                and r.ctid >= pg_catalog.format('(%s,0)', m.middle)::tid
                and r.ctid < pg_catalog.format('(%s,0)', m.middle + 1)::tid
                and r.finished_at >= p.lower
                and r.finished_at < least(p.upper, c.since)
        ) as is_old
    ) o
    where s.low < s.high
),
span as materialized (
    select
        a.oid, a.lower, a.upper, a.first, a.blocks,
        -- Each partition has its share, but at least some blocks.
        least(a.blocks, greatest($1 * a.blocks / sum(a.blocks) over (partition by a.is_new), 30)) as looks
    from (
        select p.oid, p.lower, p.upper, n.is_new, n.first, n.blocks
        from search s
        join part p on p.oid = s.oid
        cross join lateral (
            values (true, s.low, p.blocks - s.low), (false, 0, s.low)
        ) n (is_new, first, blocks)
        where s.low >= s.high
            and n.blocks > 0
    ) a
),
ended as materialized (
    select
        r.state, r.final, r.started_at, r.finished_at,
        s.blocks::double precision / s.looks as weight
    from clock c
    cross join (
        select s.oid, s.lower, s.upper, s.first, s.blocks, s.looks::bigint as looks
        from span s
    ) s
    cross join lateral pg_catalog.generate_series(0, s.looks - 1) n (i)
    cross join lateral (select s.first + n.i * s.blocks / s.looks as block) b
    -- The offset keeps the planner from moving the conditions outward; here they are a range of
    -- blocks.
    cross join lateral (
        select e.state, e.final, e.started_at, e.finished_at
        from trax.run e
        where e.tableoid = s.oid
            and e.ctid >= pg_catalog.format('(%s,0)', b.block)::tid
            and e.ctid < pg_catalog.format('(%s,0)', b.block + 1)::tid
            and e.finished_at >= greatest(s.lower, c.since)
            and e.finished_at < s.upper
        offset 0
    ) r
),
event as (
    select 'claimed' as what, e.started_at as at, e.weight
    from ended e
    union all
    select 'claimed', l.started_at, 1
    from trax.lease l
    union all
    select case when e.state = 'failed' and not e.final then 'retried' else e.state end, e.finished_at, e.weight
    from ended e
),
counted as materialized (
    select
        least(pg_catalog.floor(extract(epoch from e.at - c.since) / c.step), 59) as place,
        sum(e.weight) filter (where e.what = 'claimed') as claimed,
        sum(e.weight) filter (where e.what = 'completed') as completed,
        sum(e.weight) filter (where e.what = 'failed') as failed,
        sum(e.weight) filter (where e.what = 'retried') as retried
    from clock c
    join event e on e.at >= c.since
    group by 1
),
duration as (
    select
        d.place, d.seconds,
        sum(d.weight) over (partition by d.place order by d.seconds, d.finished_at) as passed,
        sum(d.weight) over (partition by d.place) as jobs
    from (
        select
            p.place, e.finished_at, e.weight,
            extract(epoch from e.finished_at - e.started_at)::double precision as seconds
        from clock c
        cross join ended e
        cross join lateral (
            values (least(pg_catalog.floor(extract(epoch from e.finished_at - c.since) / c.step), 59)), (60)
        ) p (place)
        where e.state = 'completed'
            and e.started_at is not null
    ) d
),
quantile as materialized (
    select
        d.place,
        min(d.seconds) filter (where d.passed >= 0.5 * d.jobs - 0.001) as p50,
        min(d.seconds) filter (where d.passed >= 0.95 * d.jobs - 0.001) as p95,
        min(d.seconds) filter (where d.passed >= 0.99 * d.jobs - 0.001) as p99
    from duration d
    group by d.place
)
select
    coalesce(n.claimed, 0)::double precision as claimed,
    coalesce(n.completed, 0)::double precision as completed,
    coalesce(n.failed, 0)::double precision as failed,
    coalesce(n.retried, 0)::double precision as retried,
    q.p50, q.p95, q.p99,
    c.since, c.now,
    exists (select from span s where s.looks < s.blocks) as estimated
from clock c
cross join pg_catalog.generate_series(0, 60) m (place)
left join counted n on n.place = m.place
left join quantile q on q.place = m.place
order by m.place
