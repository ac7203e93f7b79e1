-- Deletes the unique keys of jobs that ended, except those whose period is not over. Keys and jobs
-- are parallel arrays.
delete from trax.unique_key k
using unnest($keys, $job_ids) as e (key, job_id)
where k.key = e.key
    and k.job_id = e.job_id
    and (
        k.alive_until is null
        or k.alive_until <= $now
    )
