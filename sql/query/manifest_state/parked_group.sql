-- Returns the manifests that are parked because their group is disabled.
select s.manifest_id
from trax.manifest_state s
where s.group_name = any ($groups)
    and s.parked_on = 'group_disabled'
