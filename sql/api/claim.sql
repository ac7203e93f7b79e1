-- Claiming.

create function trax.claim_next(
    worker text default null,
    max_jobs int default 1,
    tasks text[] default null,
    groups text[] default null,
    lease interval default null
)
returns table (
    job_id bigint,
    attempt int,
    token uuid,
    task text,
    input jsonb,
    manifest text,
    group_name text,
    scheduled_for timestamptz,
    lease_expires_at timestamptz,
    timeout interval,
    trace jsonb
)
language c volatile parallel unsafe security definer
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_claim_next';
comment on function trax.claim_next(text, int, text[], text[], interval) is
    'Takes up to max_jobs (1 to 1000) waiting jobs, in the order of group priority, own priority and age, under a lease for each. Commit at once; in REPEATABLE READ or SERIALIZABLE it may end with 40001.';
