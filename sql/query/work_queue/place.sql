-- Returns where a job is; null when it waits for its time, or is nowhere that can be seen.
select coalesce(
    (
        select case when q.waits_for is null then 'ready' else 'blocked' end
        from trax.work_queue q
        where q.job_id = $job_id
            and q.waits_for is distinct from 'time'
    ),
    (
        select 'in_progress'
        from trax.lease l
        where l.job_id = $job_id
    ),
    (
        select 'finished'
        from trax.run r
        where r.job_id = $job_id
            and r.final
        limit 1
    )
)
