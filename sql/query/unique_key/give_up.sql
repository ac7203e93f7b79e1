-- Removes the unique key from the job that has it; returns no row when the job has it no more.
with waiting as (
    update trax.work_queue q
    set unique_key = null
    where q.job_id = $job_id
        and q.unique_key = $key
    returning q.job_id
), executed as (
    update trax.lease l
    set unique_key = null
    where l.job_id = $job_id
        and l.unique_key = $key
    returning l.job_id
)
select w.job_id
from waiting w
union all
select e.job_id
from executed e
