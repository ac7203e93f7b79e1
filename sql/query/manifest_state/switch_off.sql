-- Parks a manifest that is disabled, with its next occurrence.
update trax.manifest_state s
set
    group_name = $group,
    next_run_at = null,
    next_scheduled_for = null,
    parked_on = 'disabled',
    parked_since = $now,
    parked_due_at = coalesce(s.next_scheduled_for, s.parked_due_at),
    evaluation_failures = 0,
    evaluation_failed_since = null,
    evaluation_error = null
where s.manifest_id = $manifest_id
