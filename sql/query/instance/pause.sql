-- Pauses the scheduler. Without a $reason the earlier one stays.
update trax.instance i
set paused_at = coalesce(i.paused_at, $now), pause_reason = coalesce($reason, i.pause_reason)
