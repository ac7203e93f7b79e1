-- The number of dead letters that match all filters, counted up to $6. $1 task, $2 group, $3
-- manifest, $4 status, $5 part of the reason or error, $7 id.
select count(*) as count
from (
    select
    from trax.dead_letter d
    where ($1::text is null or d.task = $1)
        and ($2::text is null or d.group_name = $2)
        and ($3::text is null or d.manifest = $3)
        and ($4::text is null or d.status = $4)
        and ($5::text is null or pg_catalog.strpos(pg_catalog.concat_ws(': ', d.reason, d.last_error), $5) > 0)
        and ($7::bigint is null or d.id = $7)
    limit $6
) d
