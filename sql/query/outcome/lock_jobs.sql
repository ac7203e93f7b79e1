-- Locks jobs where they wait or are executed, in the order of the array, up to the first that is
-- neither, and returns that. So two sessions that lock several jobs lock them in one order,
-- wherever these are.
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
where waiting.job_id is null
    and executed.job_id is null
limit 1
