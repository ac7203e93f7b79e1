-- A dead letter. $1 id.
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
    d.requeued_job_id,
    d.priority,
    d.max_retries,
    d.unique_key,
    d.concurrency_key,
    d.version,
    d.rate || coalesce(', key ' || d.rate_key, '') || ', cost ' || d.cost as rate,
    d.input
from trax.dead_letter d
where d.id = $1
