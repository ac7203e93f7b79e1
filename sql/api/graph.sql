-- Graphs and batches: jobs of which some run after others.

create function trax.enqueue_graph(
    document jsonb,
    unique_key text default null
)
returns table (
    name text,
    job_id bigint
)
language c volatile parallel unsafe
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_enqueue_graph';
comment on function trax.enqueue_graph(jsonb, text) is
    'Queues jobs of which some need others, all or none, and returns their names and ids: {"jobs": [{"name": "load", "task": "etl.load"}, {"name": "sum", "sql": "call rollup()", "needs": ["load"]}]}. A job has the options of trax.enqueue or trax.enqueue_sql, but no unique_key. "when" says how the jobs that it needs must end: completed (the default), ended or failed. While a graph with this unique_key has a job that waits or runs, returns that graph''s jobs and queues nothing.';

create function trax.read_needs(
    id bigint
)
returns table (
    name text,
    job_id bigint,
    state text,
    output jsonb,
    error text
)
language c volatile parallel unsafe
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_read_needs';
comment on function trax.read_needs(bigint) is
    'Returns the jobs that a job of a graph needs, in the order of its needs, or those of a batch. state is null when the job is no longer in the history.';

create function trax.read_graph(
    id bigint
)
returns table (
    name text,
    job_id bigint,
    task text,
    state text,
    needs text[],
    condition text,
    waits_for text,
    attempt int,
    started_at timestamptz,
    finished_at timestamptz,
    error text
)
language c volatile parallel unsafe
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_read_graph';
comment on function trax.read_graph(bigint) is
    'Returns all jobs of the graph or batch of a job, also ended ones: what each needs, and how that must end (condition).';

create function trax.open_batch(
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
as 'MODULE_PATHNAME', 'trax_open_batch';
comment on function trax.open_batch(text, jsonb, timestamptz, text, int, int, interval, text, text, jsonb, interval, interval, text, bigint, text, text, int, text) is
    'Queues a job that runs after all jobs of its batch have ended, whatever they became, and returns its id, the number of the batch. trax.enqueue() with this batch adds a job, and trax.seal_batch says that all have been added. The arguments are those of trax.enqueue; with batch, this batch is one of the jobs of another.';

create function trax.seal_batch(
    batch bigint
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_seal_batch';
comment on function trax.seal_batch(bigint) is
    'Lets the job of a batch run once all its jobs have ended, and returns how many it has, also when it is sealed already. Waits for transactions that are adding jobs.';
