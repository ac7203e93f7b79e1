-- Whether a job is here, and since when: of an ended one another shard may have earlier attempts.
-- $1 the job.
select
    j.state in ('queued', 'in_progress') as lives,
    coalesce(j.finished_at, j.queued_at) as since
from trax.job j
where j.job_id = $1
