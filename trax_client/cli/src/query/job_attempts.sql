-- The ended attempts of a job, first attempt first. $1 job id.
select
    r.attempt,
    r.state,
    r.failure_kind,
    r.worker,
    r.started_at,
    r.finished_at,
    r.error,
    r.detail
from trax.run r
where r.job_id = $1
order by r.finished_at, r.attempt
