-- Requeues unresolved dead letters that match all that is given, the oldest first, and returns how
-- many, and how many it leaves because another job has their unique key. $1 task, $2 manifest,
-- $3 group, $4 part of the reason or error, $5 note, $6 at most; 100 unless told, and never more
-- than 1000.
with matching as (
    select
        d.id, d.created_at,
        d.unique_key is not null and (
            exists (
                select
                from trax.unique_key k
                where k.key = d.unique_key
                    and (not k.ended or k.job_id <> d.job_id and k.alive_until > pg_catalog.clock_timestamp())
            )
            or pg_catalog.row_number() over (partition by d.unique_key order by d.created_at, d.id) > 1
        ) as has_taken_key
    from trax.dead_letter d
    where d.status = 'awaiting_intervention'
        and ($1::text is null or d.task = $1)
        and ($2::text is null or d.manifest = $2)
        and ($3::text is null or d.group_name = $3)
        and ($4::text is null or pg_catalog.strpos(pg_catalog.concat_ws(': ', d.reason, d.last_error), $4) > 0)
), requeued as (
    select count(trax.requeue_dead_letter(id => d.id, note => $5)) as count
    from (
        select m.id
        from matching m
        where not m.has_taken_key
        order by m.created_at, m.id
        limit least(coalesce($6::int, 100), 1000)
    ) d
), left_there as (
    select count(*) as count
    from matching m
    where m.has_taken_key
)
select pg_catalog.concat_ws(
    ', and leaves ', r.count::text, case when l.count > 0 then l.count || ' of which another job has the unique key' end
)
from requeued r
cross join left_there l
