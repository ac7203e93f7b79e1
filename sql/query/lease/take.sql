-- Locks the lease of one job for its outcome.
select
    l.job_id, l.attempt, l.max_retries, l.retry_delay, l.cancelled, l.timed_out, l.manifest_id, l.unique_key,
    l.concurrency_key, case when l.limited then l.group_name end as limited_group, l.task, l.started_at, l.parent_job_id
from trax.lease l
where l.job_id = $job_id
    and l.token = $token
for update
