-- Forgets the unique keys of jobs that ended. $1 keys, $2 jobs, side by side
delete from trax.unique_key k
using unnest($1, $2) as e (key, job_id)
where k.key = e.key
    and k.job_id = e.job_id
