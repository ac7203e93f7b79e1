-- Whether anything has this group. $1 group
select
from trax.manifest_group g
where g.name = $1
union all
select
from trax.lane l
where l.group_name = $1
union all
select
from trax.manifest m
where m.group_name = $1
limit 1
