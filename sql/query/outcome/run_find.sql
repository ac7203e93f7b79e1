-- Returns whether a job has ended.
select coalesce(bool_or(r.final), false)
from trax.run r
where r.job_id = $job_id
