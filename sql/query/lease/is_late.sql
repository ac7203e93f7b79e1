-- Returns whether an attempt has exceeded its timeout, which counts only once it has begun.
select coalesce(bool_and(l.timeout_at <= $now and not l.ahead), false)
from trax.lease l
where l.job_id = $job_id
