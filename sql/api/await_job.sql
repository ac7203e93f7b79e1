-- Results: the outcomes of jobs, and waiting until they have ended.

create function trax.get_jobs(
    job_ids bigint[]
)
returns table (
    job_id bigint,
    state text,
    attempt int,
    task text,
    manifest text,
    group_name text,
    priority int,
    run_at timestamptz,
    scheduled_for timestamptz,
    queued_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    worker text,
    error text,
    output jsonb,
    progress jsonb
)
language c volatile parallel unsafe
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_get_jobs';
comment on function trax.get_jobs(bigint[]) is
    'Returns a row for each of these jobs that exists, as in trax.job but without its input, in no order.';

-- Neither security definer nor with settings of its own: either would make the call atomic and keep
-- it from committing. The call takes the rights of its owner and a fixed search_path by itself.
create procedure trax.await_job(
    job_id bigint,
    timeout interval,
    out state text,
    out output jsonb,
    out error text
)
language c
as 'MODULE_PATHNAME', 'trax_await_job';
comment on procedure trax.await_job(bigint, interval) is
    'Waits until a job has ended: completed, failed for good or cancelled. When the time is up, the state is queued (also between two attempts) or in_progress. Refused inside a transaction block.';

create procedure trax.await_jobs(
    job_ids bigint[],
    timeout interval,
    out ended bigint[],
    until_message boolean default false
)
language c
as 'MODULE_PATHNAME', 'trax_await_jobs';
comment on procedure trax.await_jobs(bigint[], interval, boolean) is
    'Waits until one of the jobs (at most 65536) has ended or does not exist, and returns all such; none when the time is up or, with until_message, when the client has sent its next message (only by the simple query protocol). Refused inside a transaction block.';
