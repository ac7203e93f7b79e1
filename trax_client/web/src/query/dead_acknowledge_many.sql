-- Acknowledges open dead letters that match all filters, oldest first, and returns their number and
-- the number of others that match. $1 task, $2 manifest, $3 group, $4 part of the reason or error,
-- $5 note, $6 limit: 100 by default, at most 1000.
with matching as materialized (
    select d.id, pg_catalog.row_number() over (order by d.created_at, d.id) as place
    from trax.dead_letter d
    where d.status = 'awaiting_intervention'
        and ($1::text is null or d.task = $1)
        and ($2::text is null or d.manifest = $2)
        and ($3::text is null or d.group_name = $3)
        and ($4::text is null or pg_catalog.strpos(pg_catalog.concat_ws(': ', d.reason, d.last_error), $4) > 0)
), acknowledged as (
    select count(trax.acknowledge_dead_letter(id => d.id, note => $5)) as count
    from (
        select m.id
        from matching m
        where m.place <= least(coalesce($6::int, 100), 1000)
        order by m.place
    ) d
)
select pg_catalog.concat_ws(', and leaves ', a.count::text, nullif(m.count - a.count, 0) || ' more that match')
from acknowledged a
cross join (select count(*) as count from matching) m
