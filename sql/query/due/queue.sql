-- Queues the scheduled entries of due manifests; manifests, occurrences and lanes are parallel
-- arrays. $dependent_boost is added to the priority of dependents. The unique index of scheduled
-- entries is a second guard beside the cycle's lock.
insert into trax.work_queue (
    lane_id, queued_at, run_at, scheduled_for, scheduled, manifest_id, max_retries, priority, task, group_name,
    manifest, timeout, retry_delay, input, run_as
)
select
    d.lane_id, $now, $now, d.scheduled_for, true, m.manifest_id, coalesce(m.max_retries, t.max_retries),
    least(m.priority + case when m.depends_mode is not null then $dependent_boost else 0 end, $highest_priority), m.task,
    m.group_name, m.name, coalesce(m.timeout, t.timeout), coalesce(m.retry_delay, t.retry_delay), m.input, m.run_as
from unnest($manifest_ids, $occurrences, $lane_ids) as d (manifest_id, scheduled_for, lane_id)
join trax.manifest m on m.manifest_id = d.manifest_id
left join trax.task t on t.name = m.task
on conflict (manifest_id) where scheduled do nothing
returning lane_id, priority, job_id
