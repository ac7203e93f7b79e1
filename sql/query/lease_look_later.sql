-- Sets when the reaper looks at leases again. $1 jobs, $2 times beside them
update trax.lease l
set reap_at = n.reap_at
from unnest($1, $2) as n (job_id, reap_at)
where l.job_id = n.job_id
