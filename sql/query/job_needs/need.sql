-- Records that a job waits for the ends of others.
insert into trax.need (needed_job_id, job_id, one_is_enough)
select n.needed_job_id, $job_id, $one_is_enough
from unnest($needed_job_ids) n (needed_job_id)
on conflict do nothing
