-- Returns the recorded heartbeats of leases whose rows another transaction had locked: the latest,
-- its end, and whether none reported that the job has begun. Jobs and tokens are parallel arrays.
select
    e.job_id, max(e.extended_at) as extended_at, max(e.lease_expires_at) as lease_expires_at,
    bool_and(e.ahead) as ahead
from unnest($job_ids, $tokens) as h (job_id, token)
join trax.lease_extension e on e.job_id = h.job_id and e.token = h.token
group by e.job_id
