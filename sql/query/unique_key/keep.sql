-- Marks the jobs of unique keys as ended; the keys stay alive for their period. Keys and jobs are
-- parallel arrays.
update trax.unique_key k
set ended = true
from unnest($keys, $job_ids) as e (key, job_id)
where k.key = e.key
    and k.job_id = e.job_id
    and k.alive_until > $now
