-- Reads all the given live jobs, or fails.
select coalesce(sum(length(j.input::text) + coalesce(length(j.trace::text), 0)), 0)::bigint
from (
    select q.input, q.trace
    from trax.work_queue q
    where q.job_id = any ($job_ids)
    union all
    select l.input, l.trace
    from trax.lease l
    where l.job_id = any ($job_ids)
) j
