-- Acknowledges open dead letters that match all filters, oldest first, and returns their number. $1
-- task, $2 manifest, $3 group, $4 part of the reason or error, $5 note, $6 limit: 100 by default,
-- at most 1000.
select count(trax.acknowledge_dead_letter(id => d.id, note => $5))::text
from (
    select d.id
    from trax.dead_letter d
    where d.status = 'awaiting_intervention'
        and ($1::text is null or d.task = $1)
        and ($2::text is null or d.manifest = $2)
        and ($3::text is null or d.group_name = $3)
        and ($4::text is null or pg_catalog.strpos(pg_catalog.concat_ws(': ', d.reason, d.last_error), $4) > 0)
    order by d.created_at, d.id
    limit least(coalesce($6::int, 100), 1000)
) d
