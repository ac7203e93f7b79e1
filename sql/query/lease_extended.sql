-- The last heartbeat of each lease that came while another transaction had its row. Side by side: $1 jobs, $2 tokens
select distinct on (e.job_id) e.job_id, e.extended_at, e.lease_expires_at
from unnest($1, $2) as h (job_id, token)
join trax.lease_extension e on e.job_id = h.job_id and e.token = h.token
order by e.job_id, e.lease_expires_at desc
