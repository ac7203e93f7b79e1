-- Makes a manifest due again after the reasons to park it have ended, and stores its group unless
-- $group is null. The reason is not in the where clause: the statement must wait for a cycle that
-- is about to park the manifest.
update trax.manifest_state s
set
    group_name = coalesce($group, s.group_name),
    next_run_at = case when s.parked_on = any($reasons) then s.parked_due_at else s.next_run_at end,
    next_scheduled_for = case when s.parked_on = any($reasons) then s.parked_due_at else s.next_scheduled_for end,
    parked_on = case when s.parked_on <> all($reasons) then s.parked_on end,
    parked_since = case when s.parked_on <> all($reasons) then s.parked_since end
where s.manifest_id = $manifest_id
