-- Deletes the needs of and for these jobs that are met: the needed job has ended. Returns each job
-- whose need was met, and whether that one is enough.
with concerned as materialized (
    select n.needed_job_id, n.job_id
    from trax.need n
    where n.needed_job_id = any ($job_ids)
    union
    select n.needed_job_id, n.job_id
    from trax.need n
    where n.job_id = any ($job_ids)
), met as (
    delete from trax.need n
    using concerned c
    where n.needed_job_id = c.needed_job_id
        and n.job_id = c.job_id
        and not exists (select from trax.work_queue q where q.job_id = c.needed_job_id)
        and not exists (select from trax.lease l where l.job_id = c.needed_job_id)
    returning n.job_id, n.one_is_enough
)
select m.job_id, bool_or(m.one_is_enough) as one_is_enough
from met m
group by m.job_id
