-- The ended attempts of a job, first attempt first. $1 job id, $2 maximum characters of a value, $3
-- limit.
select
    r.attempt,
    r.state,
    r.failure_kind,
    r.worker,
    r.run_at,
    r.started_at,
    r.finished_at,
    pg_catalog.left(r.error, $2) as error,
    -- A text that a program has printed is shown as it was.
    pg_catalog.left(case pg_catalog.jsonb_typeof(r.detail) when 'string' then r.detail #>> '{}' else pg_catalog.jsonb_pretty(r.detail) end, $2) as detail
from trax.run r
where r.job_id = $1
order by r.finished_at, r.attempt
limit $3
