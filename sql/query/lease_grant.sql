-- Moves locked waiting rows into leases. $1 their ctids, $2 worker, $3 now, $4 lease, $5 default timeout, $6 groups that
-- have a limit
with claimed as (
    delete from trax.work_queue q
    where q.ctid = any ($1)
    returning
        q.job_id, q.lane_id, q.queued_at, q.run_at, q.scheduled_for, q.expires_at, q.manifest_id,
        q.attempts + 1 as attempt, q.max_retries, q.priority, q.task, q.group_name, q.manifest, q.timeout,
        q.retry_delay, q.unique_key, q.concurrency_key, q.input, q.trace,
        $3 + $4 as lease_expires_at,
        $3 + coalesce(q.timeout, $5) as timeout_at
)
insert into trax.lease (
    job_id, lane_id, token, started_at, lease_expires_at, timeout_at, reap_at, queued_at, run_at, scheduled_for,
    expires_at, manifest_id, attempt, max_retries, priority, worker, task, group_name, manifest, timeout,
    retry_delay, unique_key, concurrency_key, limited, input, trace
)
select
    c.job_id, c.lane_id, gen_random_uuid(), $3, c.lease_expires_at, c.timeout_at,
    least(c.lease_expires_at, c.timeout_at), c.queued_at, c.run_at, c.scheduled_for,
    c.expires_at, c.manifest_id, c.attempt, c.max_retries, c.priority, $2, c.task, c.group_name, c.manifest, c.timeout,
    c.retry_delay, c.unique_key, c.concurrency_key, c.group_name = any ($6), c.input, c.trace
from claimed c
returning
    job_id, attempt, token, task, input, manifest, group_name, scheduled_for, lease_expires_at,
    coalesce(timeout, $5), trace
