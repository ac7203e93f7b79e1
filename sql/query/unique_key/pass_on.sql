-- Passes a unique key to the replacement of its job, for the rest of its period at least; returns
-- no row when another job has the key.
update trax.unique_key k
set job_id = $job_id,
    ended = false,
    alive_until = greatest(k.alive_until, $alive_until)
where k.key = $key
    and k.job_id = $former_job_id
