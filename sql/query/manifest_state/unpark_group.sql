-- Makes manifests due again that were parked because their group was disabled; their states are
-- locked.
update trax.manifest_state s
set next_run_at = s.parked_due_at, next_scheduled_for = s.parked_due_at, parked_on = null, parked_since = null
where s.manifest_id = any ($manifest_ids)
    and s.parked_on = 'group_disabled'
