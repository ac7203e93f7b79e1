-- How often jobs were lost before this attempt of theirs began. Side by side: $1 jobs, $2 attempts
select
    h.job_id,
    (
        select count(*)
        from trax.run r
        where r.job_id = h.job_id
            and r.attempt = h.attempt - 1
            and r.failure_kind = 'lease_expired'
            and r.started_at is null
    )
from unnest($1, $2) as h (job_id, attempt)
