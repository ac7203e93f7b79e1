-- The names of tasks with a manifest, a waiting or running job, or a dead letter. $1 limit.
select m.task as name
from trax.manifest m
union
select l.task
from trax.lane l
union
select l.task
from trax.lease l
union
select d.task
from trax.dead_letter d
order by 1
limit $1
