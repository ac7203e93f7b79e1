-- Dead letters that match all filters, newest first. $1 task, $2 group, $3 manifest, $4 status, $5
-- before this id, $6 limit, $7 part of the reason or error, $8 id.
select
    d.id,
    d.job_id,
    d.status,
    d.task,
    d.group_name,
    d.manifest,
    d.reason,
    d.attempts,
    pg_catalog.left(d.last_error, 500) as last_error,
    d.created_at,
    d.resolved_at,
    d.resolution_note,
    d.requeued_job_id,
    d.steps is not null as has_steps,
    d.undone
from trax.dead_letter d
where ($1::text is null or d.task = $1)
    and ($2::text is null or d.group_name = $2)
    and ($3::text is null or d.manifest = $3)
    and ($4::text is null or d.status = $4)
    and ($5::bigint is null or d.id < $5)
    and ($7::text is null or pg_catalog.strpos(pg_catalog.concat_ws(': ', d.reason, d.last_error), $7) > 0)
    and ($8::bigint is null or d.id = $8)
order by d.id desc
limit $6
