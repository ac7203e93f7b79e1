-- The dead letters of jobs. $1 jobs
select d.id
from trax.dead_letter d
where d.job_id = any ($1)
