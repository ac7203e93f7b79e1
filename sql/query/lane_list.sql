-- The lanes that a claim may pick from, with the priority of their group and whether the group has a limit. $1 tasks,
-- $2 groups, $3 lanes; null is all.
-- Subqueries, not a join: planned while both tables are empty, a join would read all groups for each lane.
select
    l.lane_id,
    coalesce((select g.priority from trax.manifest_group g where g.name = l.group_name), 0::smallint),
    l.group_name,
    exists (
        select
        from trax.manifest_group g
        where g.name = l.group_name
            and g.max_active_jobs is not null
    )
from trax.lane l
where coalesce((select g.enabled from trax.manifest_group g where g.name = l.group_name), true)
    and ($1 is null or l.task = any ($1))
    and ($2 is null or l.group_name = any ($2))
    and ($3 is null or l.lane_id = any ($3))
order by l.lane_id
