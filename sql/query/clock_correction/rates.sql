-- Corrects the times of rates that were changed by a clock that was ahead.
update trax.rate r
set created_at = least(r.created_at, $now), changed_at = $now
where r.changed_at > $latest
