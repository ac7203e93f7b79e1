-- Returns the names of the enabled manifests of a group that may be triggered; keeps them from
-- being removed until this transaction ends.
select m.name
from trax.manifest m
where m.group_name = $group
    and m.enabled
    and not m.dormant
order by m.manifest_id
for key share
