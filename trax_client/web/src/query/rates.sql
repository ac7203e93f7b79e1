-- The numbers of attempts claimed, completed and failed in each of the last sixty minutes, oldest
-- first. $1 maximum blocks of history read per partition.
--
-- A partition of history is append-only, so its last blocks are the newest, and the block where the
-- hour begins is found by bisection. Of the later blocks at most $1, evenly spaced, are read as a
-- sample. An index by time would add a cost to every job.
with recursive clock as materialized (
    select pg_catalog.clock_timestamp() - interval '1 hour' as since
),
part as materialized (
    select
        i.inhrelid as oid,
        pg_catalog.pg_relation_size(i.inhrelid)
            / pg_catalog.current_setting('block_size')::bigint as blocks
    from clock c
    cross join pg_catalog.pg_inherits i
    join pg_catalog.pg_class p on p.oid = i.inhrelid
    where i.inhparent = 'trax.run'::regclass
        and coalesce(
            substring(pg_catalog.pg_get_expr(p.relpartbound, p.oid) from ' TO [(]''([^'']+)''[)]$')
                ::timestamptz > c.since,
            true
        )
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
    cross join clock c
    cross join lateral (select (s.low + s.high) / 2 as middle) m
    cross join lateral (
        select exists (
            select
            from trax.run r
            where r.tableoid = s.oid
                and r.ctid >= pg_catalog.format('(%s,0)', m.middle)::tid
                and r.ctid < pg_catalog.format('(%s,0)', m.middle + 1)::tid
                and r.finished_at < c.since
                and r.finished_at >= c.since - interval '2 days'
        ) as is_old
    ) o
    where s.low < s.high
),
span as materialized (
    select
        s.oid,
        s.low as first,
        p.blocks - s.low as blocks,
        least(p.blocks - s.low, $1) as looks
    from search s
    join part p on p.oid = s.oid
    where s.low >= s.high
        and s.low < p.blocks
),
ended as materialized (
    select r.state, r.started_at, r.finished_at, s.blocks::double precision / s.looks as weight
    from clock c
    cross join span s
    cross join lateral pg_catalog.generate_series(0, s.looks - 1) n (i)
    cross join lateral (select s.first + n.i * s.blocks / s.looks as block) b
    -- The offset keeps the planner from moving the conditions outward; here they are a range of
    -- blocks.
    cross join lateral (
        select e.state, e.started_at, e.finished_at
        from trax.run e
        where e.tableoid = s.oid
            and e.ctid >= pg_catalog.format('(%s,0)', b.block)::tid
            and e.ctid < pg_catalog.format('(%s,0)', b.block + 1)::tid
            and e.finished_at >= c.since
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
    select e.state, e.finished_at, e.weight
    from ended e
),
counted as materialized (
    select
        pg_catalog.floor(extract(epoch from e.at - c.since) / 60) as minute,
        sum(e.weight) filter (where e.what = 'claimed') as claimed,
        sum(e.weight) filter (where e.what = 'completed') as completed,
        sum(e.weight) filter (where e.what = 'failed') as failed
    from clock c
    join event e on e.at >= c.since
    group by 1
)
select
    coalesce(n.claimed, 0)::double precision as claimed,
    coalesce(n.completed, 0)::double precision as completed,
    coalesce(n.failed, 0)::double precision as failed,
    exists (select from span s where s.looks < s.blocks) as estimated
from pg_catalog.generate_series(0, 59) m (minute)
left join counted n on n.minute = m.minute
order by m.minute
