-- Dead letters that match all filters, newest first. $1 task, $2 group, $3 manifest, $4 since, $5
-- status, $6 limit.
select
    d.id,
    d.job_id,
    d.status,
    d.task,
    d.group_name,
    d.manifest,
    d.reason,
    d.attempts,
    d.last_error,
    d.created_at,
    d.resolved_at,
    d.resolution_note,
    d.requeued_job_id
from trax.dead_letter d
where ($1::text is null or d.task = $1)
    and ($2::text is null or d.group_name = $2)
    and ($3::text is null or d.manifest = $3)
    and ($4::timestamptz is null or d.created_at >= $4)
    and ($5::text is null or d.status = $5)
order by d.id desc
limit $6
