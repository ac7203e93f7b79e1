-- Makes a manifest due again whose reason to be parked has ended. $1 manifest, $2 reason
-- The reason is not a condition: a cycle that is about to park it must be waited for.
update trax.manifest_state s
set
    next_run_at = case when s.parked_on = $2 then s.parked_due_at else s.next_run_at end,
    parked_on = nullif(s.parked_on, $2),
    parked_since = case when s.parked_on <> $2 then s.parked_since end
where s.manifest_id = $1
