-- Makes dependents due; their states are locked.
update trax.manifest_state s
set
    next_run_at = case when s.parked_on is null then coalesce(s.next_run_at, $now) end,
    next_scheduled_for = case when s.parked_on is null then coalesce(s.next_scheduled_for, $now) end,
    decided_at = case when coalesce(s.next_run_at, s.parked_due_at) is null then $now else s.decided_at end,
    parked_due_at = case
        when s.parked_on in ('group_disabled', 'dead_letter', 'queued', 'executing') then coalesce(s.parked_due_at, $now)
        else s.parked_due_at
    end
where s.manifest_id = any ($child_ids)
