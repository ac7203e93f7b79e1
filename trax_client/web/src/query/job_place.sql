-- Whether a job is live here, and since when. Of an ended job, another shard may have earlier
-- attempts. $1 job id.
select
    j.state in ('queued', 'in_progress') as lives,
    coalesce(j.finished_at, j.queued_at) as since
from trax.job j
where j.job_id = $1
