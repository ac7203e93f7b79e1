-- Passes the unique key of an ended job to its replacement, for the rest of its period; returns no
-- row when another job has the key.
update trax.unique_key k
set job_id = $job_id, ended = false
where k.key = $key
    and k.job_id = $ended_job_id
    and k.ended
