-- Admits jobs to a group, with the numbers after the last.
insert into trax.admission (group_name, number, job_id)
select $group, $last + n.at, n.job_id
from unnest($job_ids) with ordinality as n (job_id, at)
