-- Requeues open dead letters that match all filters, oldest first. Returns their number, the number
-- of others that match, and the numbers skipped because another job has their unique key, or their
-- steps are being undone. $1 task, $2 manifest, $3 group, $4 part of the reason or error, $5 note,
-- $6 limit: 100 by default, at most 1000.
with matching as (
    select
        d.id, d.created_at, d.undone,
        d.is_taken
            or d.unique_key is not null
                and pg_catalog.row_number() over (partition by d.unique_key, d.is_taken, d.undone order by d.created_at, d.id) > 1
            as has_taken_key
    from (
        select
            o.id, o.created_at, o.unique_key, o.undone,
            exists (
                select
                from trax.unique_key k
                where k.key = o.unique_key
                    and (not k.ended or k.job_id <> o.job_id and k.alive_until > pg_catalog.clock_timestamp())
            ) as is_taken
        from trax.dead_letter o
        where o.status = 'awaiting_intervention'
            and (o.task <> 'sql' or o.run_as is not null)
            and ($1::text is null or o.task = $1)
            and ($2::text is null or o.manifest = $2)
            and ($3::text is null or o.group_name = $3)
            and ($4::text is null or pg_catalog.strpos(pg_catalog.concat_ws(': ', o.reason, o.last_error), $4) > 0)
    ) d
), requeued as (
    select count(trax.requeue_dead_letter(id => d.id, note => $5)) as count
    from (
        select m.id
        from matching m
        where not m.has_taken_key
            and not m.undone
        order by m.created_at, m.id
        limit least(coalesce($6::int, 100), 1000)
    ) d
), left_there as (
    select
        count(*) filter (where not m.has_taken_key and not m.undone) as free,
        count(*) filter (where m.has_taken_key and not m.undone) as taken,
        count(*) filter (where m.undone) as undone
    from matching m
)
select pg_catalog.concat_ws(
    ', and leaves ',
    r.count::text,
    nullif(l.free - r.count, 0) || ' more that match',
    nullif(l.taken, 0) || ' of which another job has the unique key',
    nullif(l.undone, 0) || ' whose steps are being undone'
)
from requeued r
cross join left_there l
