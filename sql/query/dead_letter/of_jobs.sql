-- Returns the dead letters of jobs.
select d.id
from trax.dead_letter d
where d.job_id = any ($job_ids)
