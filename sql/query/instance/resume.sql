-- Resumes the scheduler.
update trax.instance i
set paused_at = null, pause_reason = null
where i.paused_at is not null
