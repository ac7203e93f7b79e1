-- Claiming.

create function trax.claim_next(
    worker text default null,
    max_jobs int default 1,
    tasks text[] default null,
    groups text[] default null,
    lease interval default null,
    places int default null,
    versions text[] default null,
    min_jobs int default 1,
    max_wait interval default null
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
    trace jsonb,
    max_attempts int,
    queued_at timestamptz,
    steps int
)
language c volatile parallel unsafe
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_claim_next';
comment on function trax.claim_next(text, int, text[], text[], interval, int, text[], int, interval) is
    'Claims up to max_jobs (1 to 1000) waiting jobs, in the order of group priority, own priority and age, with a lease for each. With places, a job begins when a heartbeat reports it; places is how many the worker begins at once, and of jobs of a rate only these are claimed. With versions, claims only jobs of these versions and jobs without a version. With min_jobs, claims nothing while fewer jobs are ready, unless one has been ready for max_wait. Commit at once; in REPEATABLE READ or SERIALIZABLE the claim may end with 40001.';

create function trax.complete_and_claim(
    job_ids bigint[],
    tokens uuid[],
    outputs jsonb[] default null,
    worker text default null,
    max_jobs int default 1,
    tasks text[] default null,
    groups text[] default null,
    lease interval default null,
    places int default null,
    versions text[] default null,
    min_jobs int default 1,
    max_wait interval default null
)
returns table (
    completed_job_id bigint,
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
    trace jsonb,
    max_attempts int,
    queued_at timestamptz,
    steps int
)
language c volatile parallel unsafe
rows 20
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_complete_and_claim';
comment on function trax.complete_and_claim(bigint[], uuid[], jsonb[], text, int, text[], text[], interval, int, text[], int, interval) is
    'Does trax.complete_many and trax.claim_next in one round trip and one commit. Returns first a row with completed_job_id for each completion recorded, then a row for each job claimed.';

-- Neither security definer nor with settings of its own: either would make the call atomic and keep
-- it from giving up its snapshot. The call takes the rights of its owner and a fixed search_path by
-- itself.
create procedure trax.wait_for_work(
    timeout interval default '30 s'
)
language c
as 'MODULE_PATHNAME', 'trax_wait_for_work';
comment on procedure trax.wait_for_work(interval) is
    'Waits until there may be work that this session has not looked for, or the time is up. Refused inside a transaction block. Without the preloaded library it checks twice a second.';

create function trax.waiting_tasks(
    groups text[] default null
)
returns table (
    task text
)
language c volatile parallel unsafe
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_waiting_tasks';
comment on function trax.waiting_tasks(text[]) is
    'Returns the tasks with ready jobs that the caller may claim, in any group or in these.';
