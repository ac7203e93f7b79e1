-- Returns a row if anything names this group.
select
from trax.manifest_group g
where g.name = $group
union all
select
from trax.manifest m
where m.group_name = $group
union all
select
from trax.lease l
where l.group_name = $group
union all
select
from trax.work_queue q
where q.group_name = $group
union all
select
from trax.dead_letter d
where d.group_name = $group
union all
select
from trax.run r
where r.group_name = $group
limit 1
