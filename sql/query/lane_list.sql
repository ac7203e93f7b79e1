-- The lanes that a claim may pick from, with the priority of their group and whether the group has a limit; those of
-- groups whose limit is used up are left out. $1 tasks, $2 groups; null is all.
-- Subqueries, not a join: planned while both tables are empty, a join would read all groups for each lane.
with full_group as materialized (
    select g.name
    from trax.manifest_group g
    where g.max_active_jobs is not null
        and g.max_active_jobs <= (
            select count(*)
            from (
                select
                from trax.lease a
                where a.group_name = g.name
                    and a.limited
                limit g.max_active_jobs
            ) a
        )
)
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
    and l.group_name <> all (array(select f.name from full_group f))
