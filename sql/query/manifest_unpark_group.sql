-- Makes the manifests of a group due again that were parked because it was disabled. $1 group
update trax.manifest_state s
set next_run_at = s.parked_due_at, next_scheduled_for = s.parked_due_at, parked_on = null, parked_since = null
where s.group_name = $1
    and s.parked_on = 'group_disabled'
