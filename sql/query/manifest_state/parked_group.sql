-- The manifests of groups that are parked because those were disabled. $1 groups
select s.manifest_id
from trax.manifest_state s
where s.group_name = any ($1)
    and s.parked_on = 'group_disabled'
