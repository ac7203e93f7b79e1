-- Returns whether an attempt has run longer than its timeout; one that has not begun runs no time.
select coalesce(bool_and(l.timeout_at <= $now and not l.ahead), false)
from trax.lease l
where l.job_id = $job_id
