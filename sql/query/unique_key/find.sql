-- Returns the job that keeps a unique key alive, whether the job has ended, and whether the key is
-- free because its period is over, too.
select k.job_id, k.ended, k.ended and k.alive_until <= $now as is_over
from trax.unique_key k
where k.key = $key
