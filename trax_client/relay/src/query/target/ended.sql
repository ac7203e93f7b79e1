select
    a.job_id,
    coalesce(j.state, 'unknown'),
    j.output::text,
    j.error,
    j.finished_at::text
from unnest($1) a (job_id)
left join trax.get_jobs($1) j on j.job_id operator(pg_catalog.=) a.job_id
where j.job_id is null
    or j.state in ('completed', 'failed', 'cancelled')
