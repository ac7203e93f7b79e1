-- Makes a manifest due again that was parked because it was disabled, for an occurrence that has
-- come since. $1 manifest, $2 now
update trax.manifest_state s
set next_run_at = s.parked_due_at, next_scheduled_for = s.parked_due_at, parked_on = null, parked_since = null
where s.manifest_id = $1
    and s.parked_on = 'disabled'
    and s.parked_due_at <= $2
