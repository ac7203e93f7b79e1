-- Returns how often jobs were lost before their current attempt began. Jobs and attempts are
-- parallel arrays.
select
    h.job_id,
    (
        select count(*)
        from trax.run r
        where r.job_id = h.job_id
            and r.attempt = h.attempt - 1
            and r.failure_kind = 'lease_expired'
            and r.started_at is null
    ) as times
from unnest($job_ids, $attempts) as h (job_id, attempt)
