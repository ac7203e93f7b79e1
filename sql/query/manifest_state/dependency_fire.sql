-- Makes dependents due; their states are locked. $1 children, $2 now
update trax.manifest_state s
set
    next_run_at = case when s.parked_on is null then coalesce(s.next_run_at, $2) end,
    next_scheduled_for = case when s.parked_on is null then coalesce(s.next_scheduled_for, $2) end,
    decided_at = case when coalesce(s.next_run_at, s.parked_due_at) is null then $2 else s.decided_at end,
    parked_due_at = case
        when s.parked_on in ('group_disabled', 'dead_letter', 'queued', 'executing') then coalesce(s.parked_due_at, $2)
        else s.parked_due_at
    end
where s.manifest_id = any ($1)
