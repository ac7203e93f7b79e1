-- The lanes that a claim may pick from, with the priority of their group. $1 tasks, $2 groups; null is all.
select
    l.lane_id,
    coalesce(g.priority, 0::smallint),
    l.group_name
from trax.lane l
left join trax.manifest_group g on g.name = l.group_name
where coalesce(g.enabled, true)
    and ($1 is null or l.task = any ($1))
    and ($2 is null or l.group_name = any ($2))
