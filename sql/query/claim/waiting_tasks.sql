-- Which tasks have jobs ready to be claimed, and in which group. $1 groups, or null
select l.task, l.group_name
from trax.lane l
where $1 is null
    or l.group_name = any ($1)
order by l.task, l.group_name
