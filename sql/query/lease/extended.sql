-- What heartbeats said of leases while another transaction had their rows: the last, until when at
-- most, and whether none said that the job has begun. Side by side: $1 jobs, $2 tokens
select e.job_id, max(e.extended_at), max(e.lease_expires_at), bool_and(e.ahead)
from unnest($1, $2) as h (job_id, token)
join trax.lease_extension e on e.job_id = h.job_id and e.token = h.token
group by e.job_id
