-- Admits the jobs that wait in a group when it gets a limit of waiting jobs, the oldest first, or
-- forgets them when it has none any more. Jobs of manifests, and jobs that others have queued as
-- children or to undo steps, come on top.
with old as (
    delete from trax.admission a
    where a.group_name = $group
        and not exists (
            select
            from trax.manifest_group g
            where g.name = $group
                and g.max_waiting is not null
        )
)
insert into trax.admission (group_name, number, job_id)
select
    $group,
    coalesce((select max(a.number) from trax.admission a where a.group_name = $group), 0)
        + row_number() over (order by q.job_id),
    q.job_id
from trax.work_queue q
where q.group_name = $group
    and q.manifest_id is null
    and q.parent_job_id is null
    and exists (
        select
        from trax.manifest_group g
        where g.name = $group
            and g.max_waiting is not null
    )
    and not exists (
        select
        from trax.admission a
        where a.group_name = $group
            and a.job_id = q.job_id
    )
