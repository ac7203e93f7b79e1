-- Jobs, as trax.job shows them, without their inputs, which the caller knows or may not see.
select
    j.job_id,
    j.state,
    j.attempt,
    j.task,
    j.manifest,
    j.group_name,
    j.priority::int as priority,
    j.run_at,
    j.scheduled_for,
    j.queued_at,
    j.started_at,
    j.finished_at,
    j.worker,
    j.error,
    j.output,
    j.progress
from trax.job j
where j.job_id = any ($job_ids)
