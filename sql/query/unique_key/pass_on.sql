-- Gives the unique key of an ended job to the job in its place, for the rest of its time; no row
-- when the key is another's meanwhile.
update trax.unique_key k
set job_id = $job_id, ended = false
where k.key = $key
    and k.job_id = $ended_job_id
    and k.ended
