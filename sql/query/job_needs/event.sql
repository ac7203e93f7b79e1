-- Records that jobs have ended, or have begun to wait for others.
insert into trax.need_event (job_id)
select e.job_id
from unnest($job_ids) e (job_id)
