-- Returns the job that keeps a unique key alive, whether the job has ended, whether the key is free
-- because its period is over, too, and whether it has a period that is not over.
select
    k.job_id, k.ended, k.ended and k.alive_until <= $now as is_over,
    coalesce(k.alive_until > $now, false) as is_in_period
from trax.unique_key k
where k.key = $key
