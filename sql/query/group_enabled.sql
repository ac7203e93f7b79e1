-- Whether a group is switched on. $1 group
select g.enabled
from trax.manifest_group g
where g.name = $1
