-- A job in any state, as trax.job shows it. $1 job id.
select
    j.job_id,
    j.state,
    j.attempt,
    j.task,
    j.input,
    j.manifest,
    j.group_name,
    j.priority,
    j.run_at,
    j.scheduled_for,
    j.queued_at,
    j.started_at,
    j.finished_at,
    j.worker,
    j.error,
    j.output,
    j.progress,
    j.parent_job_id,
    j.version,
    j.rate || coalesce(', key ' || j.rate_key, '') || ', cost ' || j.cost as rate,
    q.waits_for,
    coalesce(q.unique_key, l.unique_key) as unique_key,
    coalesce(q.concurrency_key, l.concurrency_key) as concurrency_key,
    coalesce(q.max_retries, l.max_retries) as max_retries,
    l.lease_expires_at,
    l.timeout_at,
    coalesce(l.cancel_requested, false) as cancel_requested,
    d.id as dead_letter_id,
    d.status as dead_letter_status,
    d.reason as dead_letter_reason,
    d.requeued_job_id
from trax.job j
left join trax.work_queue q on q.job_id = j.job_id
left join trax.lease l on l.job_id = j.job_id
left join trax.dead_letter d on d.job_id = j.job_id
where j.job_id = $1
