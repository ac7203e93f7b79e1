-- Locks leases that seem to be over: expired, or asked to stop before $asked_by.
select
    l.job_id, l.attempt, l.max_retries, l.retry_delay, l.cancelled, l.timed_out, l.manifest_id, l.unique_key,
    l.concurrency_key, case when l.limited then l.group_name end as limited_group, l.task, l.started_at, l.parent_job_id,
    l.token, coalesce(l.extended_at, l.started_at) as extended_at, l.lease_expires_at, l.timeout_at, l.ahead
from trax.lease l
where l.job_id = any ($job_ids)
    and (l.lease_expires_at <= $now or l.timed_out and l.timeout_at <= $asked_by)
for update skip locked
