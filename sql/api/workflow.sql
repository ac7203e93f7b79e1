-- Steps, waits and children of jobs.

create function trax.record_step(
    job_id bigint,
    token uuid,
    step text,
    output jsonb default null,
    undo jsonb default null,
    lease interval default null
)
returns table (
    recorded boolean,
    output jsonb
)
language c volatile parallel unsafe
rows 1
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_record_step';
comment on function trax.record_step(bigint, uuid, text, jsonb, jsonb, interval) is
    'Records the result of a step, unless the job has a step of this name. Returns whether it did, and the output that is kept; no row when the lease is lost. In the transaction of the step''s own writes, their effect happens exactly once. undo ({"task": ..., "input": ...}) is the job that undoes the step if the job fails for good or is cancelled; lease extends the lease from now.';

create function trax.read_steps(
    job_id bigint
)
returns table (
    step text,
    kind text,
    output jsonb,
    attempt int,
    recorded_at timestamptz,
    timed_out boolean,
    wait jsonb,
    undo jsonb
)
language c volatile parallel unsafe
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_read_steps';
comment on function trax.read_steps(bigint) is
    'Returns the steps of a job, also of an ended job, in the order of recording. recorded_at is null for the wait in which the job is suspended; wait says since when, and for what.';

create function trax.sleep(
    job_id bigint,
    token uuid,
    step text,
    until timestamptz
)
returns text
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_sleep';
comment on function trax.sleep(bigint, uuid, text, timestamptz) is
    'Suspends a job until a time. Returns ''suspended'' (the attempt has ended without being spent), ''passed'' (the time is over, also in later attempts) or ''lost'' (the lease is lost).';

create function trax.await_signal(
    job_id bigint,
    token uuid,
    step text,
    name text,
    until timestamptz default null
)
returns table (
    state text,
    payload jsonb
)
language c volatile parallel unsafe security definer
rows 1
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_await_signal';
comment on function trax.await_signal(bigint, uuid, text, text, timestamptz) is
    'Takes the next signal of a name, or suspends the job until one is sent or the time is up. Returns ''received'' with the payload, ''timed_out'', or ''suspended'' or ''lost'' as trax.sleep() does.';

create function trax.send_signal(
    job_id bigint,
    name text,
    payload jsonb default null,
    signal_id text default null
)
returns text
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_send_signal';
comment on function trax.send_signal(bigint, text, jsonb, text) is
    'Sends a signal to a job, which keeps it until it is taken. Returns ''sent'', ''duplicate'' when the job had a signal with this signal_id before, ''ended'' or ''unknown''. A second sender of the same name to the same job waits for the first to commit.';

create function trax.spawn(
    job_id bigint,
    token uuid,
    step text,
    task text,
    input jsonb default '{}',
    run_at timestamptz default null,
    group_name text default null,
    priority int default 0,
    max_retries int default null,
    timeout interval default null,
    unique_key text default null,
    concurrency_key text default null,
    trace jsonb default null,
    retry_delay interval default null,
    unique_for interval default null,
    version text default null,
    batch bigint default null,
    rate text default null,
    rate_key text default null,
    cost int default 1,
    on_duplicate text default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_spawn';
comment on function trax.spawn(bigint, uuid, text, text, jsonb, timestamptz, text, int, int, interval, text, text, jsonb, interval, interval, text, bigint, text, text, int, text) is
    'Queues a job as a child of an executing job, once for each step, and returns its id, also in later attempts; null when the lease is lost, or the job is asked to stop. The arguments after step are those of trax.enqueue; a job of a batch may add to that batch after the seal.';

create function trax.await_children(
    job_id bigint,
    token uuid,
    step text,
    mode text default 'all',
    until timestamptz default null
)
returns table (
    state text,
    children jsonb
)
language c volatile parallel unsafe security definer
rows 1
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_await_children';
comment on function trax.await_children(bigint, uuid, text, text, timestamptz) is
    'Suspends a job until all the children that it has spawned, or any of them (mode), have ended, or the time is up. Returns ''ended'' or ''timed_out'' with the children, an array of {step, job_id, state, output, error}; or ''suspended'' or ''lost'' as trax.sleep() does.';

create function trax.fork(
    job_id bigint,
    from_step text default null,
    input jsonb default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_fork';
comment on function trax.fork(bigint, text, jsonb) is
    'Queues a job like an ended one, with its steps before from_step, or all, and this input or its own; returns the id. Steps that it takes over are not undone.';

create function trax.kept_steps(
    bigint
)
returns jsonb
language sql stable parallel unsafe
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO'
set timezone = 'GMT'
as $$
    -- Outputs of more than 64 MiB together would not fit into one value.
    with own as (
        select s.*, sum(octet_length(s.output::text)) over () > 64 * 1024 * 1024 as is_too_much
        from trax.step s
        where s.job_id = $1
            and s.recorded_at is not null
    )
    select jsonb_agg(
        jsonb_build_object(
            'step', s.step, 'kind', s.kind, 'attempt', s.attempt, 'recorded_at', s.recorded_at
        )
        || case when s.output is null or s.is_too_much then '{}' else jsonb_build_object('output', s.output) end
        || case when s.is_too_much then jsonb_build_object('left_out', true) else '{}' end
        || case when s.timed_out then jsonb_build_object('timed_out', true) else '{}' end
        || case when s.wait is not null then jsonb_build_object('wait', s.wait) else '{}' end
        || case when s.undo is not null then jsonb_build_object('undo', s.undo) else '{}' end
        order by s.step_id
    )
    from own s
$$;
comment on function trax.kept_steps(bigint) is
    'Internal. Returns the recorded steps of a living job as trax.run keeps them; null when it has none.';
