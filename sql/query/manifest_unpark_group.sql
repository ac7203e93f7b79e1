-- Makes the manifests of a group due again that were parked because it was disabled. $1 group
update trax.manifest_state s
set next_run_at = s.parked_due_at, parked_on = null, parked_since = null
from trax.manifest m
where m.group_name = $1
    and s.manifest_id = m.manifest_id
    and s.parked_on = 'group_disabled'
