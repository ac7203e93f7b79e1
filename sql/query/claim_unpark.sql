-- A manifest that may overlap is due again once the entry that waited is claimed. $1 names
-- The reason is no condition of the row: a cycle that is about to park it must be waited for.
update trax.manifest_state s
set
    next_run_at = case when s.parked_on = 'queued' then s.parked_due_at else s.next_run_at end,
    next_scheduled_for = case when s.parked_on = 'queued' then s.parked_due_at else s.next_scheduled_for end,
    parked_on = nullif(s.parked_on, 'queued'),
    parked_since = case when s.parked_on <> 'queued' then s.parked_since end
from trax.manifest m
where m.name = any ($1)
    and m.overlap = 'allow'
    and s.manifest_id = m.manifest_id
