-- Keeps a unique key alive until a time at least.
update trax.unique_key k
set alive_until = greatest(k.alive_until, $alive_until)
where k.key = $key
    and k.job_id = $job_id
