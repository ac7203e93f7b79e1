-- Pauses the scheduler. $1 reason, $2 now
update trax.instance i
set paused_at = coalesce(i.paused_at, $2), pause_reason = $1
