-- Makes a manifest due again that was parked because it was disabled, if an occurrence has come
-- since.
update trax.manifest_state s
set
    group_name = $group,
    next_run_at = s.parked_due_at,
    next_scheduled_for = s.parked_due_at,
    parked_on = null,
    parked_since = null
where s.manifest_id = $manifest_id
    and s.parked_on = 'disabled'
    and s.parked_due_at <= $now
