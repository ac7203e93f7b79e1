-- Pauses the scheduler.
update trax.instance i
set paused_at = coalesce(i.paused_at, $now), pause_reason = $reason
