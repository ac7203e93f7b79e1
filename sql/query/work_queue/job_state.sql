-- Returns the state of a job; null when it is delayed, or is not visible anywhere.
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
