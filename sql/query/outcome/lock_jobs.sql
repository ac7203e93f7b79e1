-- Locks waiting and executed jobs, in the order of the array, up to the first that has moved since
-- this statement began, and returns that. So two sessions that lock several jobs lock them in one
-- order, whatever their tables. A job that has ended is skipped.
select j.job_id
from unnest($job_ids) as j (job_id)
left join lateral (
    select q.job_id
    from trax.work_queue q
    where q.job_id = j.job_id
    for update
) waiting on true
left join lateral (
    select l.job_id
    from trax.lease l
    where l.job_id = j.job_id
    for update
) executed on true
-- The history is read only for a job that is in neither table.
where case
        when waiting.job_id is null and executed.job_id is null then (
            select r.job_id
            from trax.run r
            where r.job_id = j.job_id
                and r.final
            limit 1
        ) is null
    end
limit 1
