-- Whether a job has ended, and whether any attempt of it is on record. $1 job
select coalesce(bool_or(r.final), false), count(*) > 0
from trax.run r
where r.job_id = $1
