-- Whether a job has ended. $1 job
select coalesce(bool_or(r.final), false)
from trax.run r
where r.job_id = $1
