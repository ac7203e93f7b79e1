-- Locks a waiting job and returns its values that a change depends on.
select
    q.task, q.group_name, q.run_as, q.version, q.priority, q.run_at, q.waits_for,
    coalesce(q.steps > 0 or q.waits_for = 'signal', false) as has_begun, q.lane_id, q.concurrency_key, q.rate,
    q.rate_key, q.cost, q.manifest_id, q.manifest
from trax.work_queue q
where q.job_id = $job_id
    and ($unique_key::text is null or q.unique_key = $unique_key)
for update
