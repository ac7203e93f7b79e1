-- The names of groups with settings, a manifest, or a waiting or running job. $1 limit.
select g.name
from trax.manifest_group g
union
select m.group_name
from trax.manifest m
union
select l.group_name
from trax.lane l
union
select l.group_name
from trax.lease l
order by 1
limit $1
