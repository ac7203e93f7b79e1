-- Returns whether a job that lives, and that $job_id did not spawn, is $job_id itself or waits for
-- its end: as an ancestor, or because it needs it, through others too.
with recursive above as (
    select $job_id as job_id
    where not exists (
        select
        from trax.work_queue q
        where q.job_id = $child
            and q.parent_job_id = $job_id
    )
    union
    select w.job_id
    from above a
    cross join lateral (
        select n.job_id
        from trax.need n
        where n.needed_job_id = a.job_id
        union all
        select q.parent_job_id
        from trax.work_queue q
        where q.job_id = a.job_id
        union all
        select l.parent_job_id
        from trax.lease l
        where l.job_id = a.job_id
    ) w
    where w.job_id is not null
)
select exists (select from above a where a.job_id = $child)
    and (
        exists (select from trax.lease l where l.job_id = $child)
        or exists (select from trax.work_queue q where q.job_id = $child)
    )
