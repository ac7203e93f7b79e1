select
    a.id,
    coalesce(j.state, 'unknown'),
    j.output::text,
    j.error,
    j.finished_at::text
from unnest($1, $2) a (id, job_id)
left join trax.get_jobs($2) j on j.job_id operator(pg_catalog.=) a.job_id
where j.job_id is null
    or j.state in ('completed', 'failed', 'cancelled')
