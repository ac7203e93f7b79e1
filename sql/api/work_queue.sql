-- Producing jobs.
--
-- What a role may be limited to (sql/schema/access.sql) takes the rights of its owner by itself,
-- rather than as security definer, which would not say who calls.

create function trax.enqueue(
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
    unique_for interval default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_enqueue';
comment on function trax.enqueue(text, jsonb, timestamptz, text, int, int, interval, text, text, jsonb, interval, interval) is
    'Queues one job and returns its id. It has max_retries attempts after the first; the delay before each begins with retry_delay and grows. While a job with the same unique_key is alive (waiting or executing), returns that job''s id and queues nothing; with unique_for the key stays alive at least so long after the job was queued, also when that has ended. timeout, retry_delay and unique_for are intervals, as in timeout => ''90 s'': a driver passes its own type for them (in Python a timedelta) or make_interval(secs => 90), not a number.';

create function trax.enqueue_many(
    task text,
    inputs jsonb[],
    run_at timestamptz default null,
    group_name text default null,
    priority int default 0,
    max_retries int default null,
    timeout interval default null,
    unique_key text default null,
    concurrency_key text default null,
    trace jsonb default null,
    retry_delay interval default null,
    unique_for interval default null
)
returns setof bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_enqueue_many';
comment on function trax.enqueue_many(text, jsonb[], timestamptz, text, int, int, interval, text, text, jsonb, interval, interval) is
    'Queues one job for each input and returns their ids in the order of the inputs.';

create function trax.run_now(
    job_id bigint
)
returns text
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_run_now';
comment on function trax.run_now(bigint) is
    'Makes a job claimable that waits for its next attempt or its run_at, and returns where it is: ''ready'', ''blocked'' (waiting for its concurrency key or manifest), ''in_progress'', ''finished'' or ''unknown''.';

create function trax.limit_queue_time(
    job_id bigint,
    time_limit interval default null
)
returns boolean
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_limit_queue_time';
comment on function trax.limit_queue_time(bigint, interval) is
    'Sets how long from now, or from its run_at, a job may wait: one that waits longer, for a retry too, ends as failed with the kind ''expired''. Null removes the limit. Returns false when the job does not wait. In the transaction that enqueues the job, the limit is set before anyone can claim it.';

-- Fires for statements by hand and for those of the cycle, which it lets pass; claims, completions
-- and enqueueing run no statement.
create function trax.changed_manually()
returns trigger
language c
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_changed_manually';
comment on function trax.changed_manually() is
    'Internal. Discards what shared memory knows of the queue when a statement of a user changes it, and the adoption when a restore does.';
create trigger work_queue_changed_manually
before insert or update or delete or truncate on trax.work_queue
for each statement execute function trax.changed_manually();
create trigger lease_changed_manually
before insert or update or delete or truncate on trax.lease
for each statement execute function trax.changed_manually();
create trigger manifest_group_changed_manually
before insert or update or delete or truncate on trax.manifest_group
for each statement execute function trax.changed_manually();
