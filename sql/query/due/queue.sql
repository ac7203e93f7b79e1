-- Queues the scheduled entries of due manifests. Side by side: $1 manifests, $2 occurrences, $3
-- lanes. $4 now, $5 what dependents get on top of their priority. The unique index of scheduled
-- entries is the guard under the cycle's lock.
insert into trax.work_queue (
    lane_id, queued_at, run_at, scheduled_for, scheduled, manifest_id, max_retries, priority, task, group_name,
    manifest, timeout, retry_delay, input
)
select
    d.lane_id, $4, $4, d.scheduled_for, true, m.manifest_id, m.max_retries,
    least(m.priority + case when m.depends_mode is not null then $5 else 0 end, 31), m.task, m.group_name,
    m.name, m.timeout, m.retry_delay, m.input
from unnest($1, $2, $3) as d (manifest_id, scheduled_for, lane_id)
join trax.manifest m on m.manifest_id = d.manifest_id
on conflict (manifest_id) where scheduled do nothing
returning lane_id, priority, job_id
