-- Returns whether one of these leases is held; jobs and tokens are parallel arrays.
select exists (
    select
    from unnest($job_ids, $tokens) as h (job_id, token)
    join trax.lease l on l.job_id = h.job_id and l.token = h.token
)
