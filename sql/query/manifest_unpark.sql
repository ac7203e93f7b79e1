-- Makes a manifest due again whose reason to be parked has ended. $1 manifest, $2 reason
update trax.manifest_state s
set next_run_at = s.parked_due_at, next_scheduled_for = s.parked_due_at, parked_on = null, parked_since = null
where s.manifest_id = $1
    and s.parked_on = $2
