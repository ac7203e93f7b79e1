-- Returns a job to the queue without using an attempt: at once, at $run_at, or suspended
-- ($waits_for) until its wait ends or $wait_until is over. A suspended job was claimed in time, so
-- that its queue time limit is over.
with released as (
    delete from trax.lease l
    where l.job_id = $job_id
        and l.token = $token
        and not l.cancel_requested
    returning
        l.job_id, l.lane_id, l.queued_at, l.scheduled_for, l.expires_at, l.manifest_id, l.attempt, l.max_retries,
        l.priority, l.task, l.group_name, l.manifest, l.timeout, l.retry_delay, l.unique_key, l.concurrency_key,
        l.input, l.trace, l.run_as, l.parent_job_id, l.version, l.rate, l.rate_key, l.cost
)
insert into trax.work_queue (
    job_id, lane_id, queued_at, run_at, waits_for, scheduled_for, expires_at, manifest_id, attempts, max_retries,
    priority, task, group_name, manifest, timeout, retry_delay, unique_key, concurrency_key, input, trace, run_as,
    parent_job_id, version, rate, rate_key, cost, wait_until, steps
)
overriding system value
select
    r.job_id, r.lane_id, r.queued_at, $run_at, coalesce($waits_for, case when $run_at > $now then 'time' end),
    r.scheduled_for, case when $waits_for is null then r.expires_at end, r.manifest_id, r.attempt - 1, r.max_retries, r.priority, r.task, r.group_name,
    r.manifest, r.timeout, r.retry_delay, r.unique_key, r.concurrency_key, r.input, r.trace, r.run_as,
    r.parent_job_id, r.version, r.rate, r.rate_key, r.cost, $wait_until,
    (select nullif(count(*), 0) from trax.step s where s.job_id = r.job_id)
from released r
returning lane_id, priority, job_id, concurrency_key, group_name, waits_for is null as is_claimable, manifest_id
