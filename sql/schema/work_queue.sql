-- work_queue: the waiting jobs, ready or due later.

create table trax.work_queue (
    job_id bigint generated always as identity,
    lane_id bigint not null,
    queued_at timestamptz not null,
    run_at timestamptz not null,
    scheduled_for timestamptz,
    expires_at timestamptz,
    manifest_id bigint,
    attempts int not null default 0,
    max_retries int,
    priority smallint not null default 0,
    scheduled boolean not null default false,
    waits_for text,
    task text collate "C" not null,
    group_name text collate "C" not null,
    manifest text collate "C",
    timeout interval,
    retry_delay interval,
    unique_key text collate "C",
    concurrency_key text collate "C",
    input jsonb not null,
    trace jsonb,
    run_as text collate "C",
    steps int,
    parent_job_id bigint,
    wait_until timestamptz,
    version text collate "C",
    rate text collate "C",
    rate_key text collate "C",
    cost int,
    constraint work_queue_pkey primary key (job_id),
    constraint work_queue_waits_for_known check (waits_for in ('time', 'key', 'manifest', 'signal', 'jobs')),
    constraint work_queue_steps_positive check (steps > 0),
    constraint work_queue_wait_until_of_suspended check (wait_until is null or waits_for in ('signal', 'jobs')),
    constraint work_queue_priority_range check (priority between 0 and 31),
    constraint work_queue_attempts_not_negative check (attempts >= 0),
    constraint work_queue_max_retries_not_negative check (max_retries >= 0),
    constraint work_queue_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    constraint work_queue_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days'),
    constraint work_queue_cost_of_rate check ((rate is null) = (cost is null) and cost > 0),
    constraint work_queue_rate_key_of_rate check (rate_key is null or rate is not null),
    constraint work_queue_only_sql_runs_as_a_role check (run_as is null or task = 'sql'),
    constraint work_queue_manifest_has_id check ((manifest is null) = (manifest_id is null)),
    constraint work_queue_scheduled_entry_is_fresh check (
        not scheduled
        or (manifest_id is not null and attempts = 0)
    )
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Exactly the order in which a claim reads one lane.
create index work_queue_ready on trax.work_queue (lane_id, priority desc, job_id) where waits_for is null;
create index work_queue_delayed on trax.work_queue (run_at) where waits_for = 'time';
-- The suspended jobs whose wait ends at a time, and all.
create index work_queue_wait_until on trax.work_queue (wait_until) where wait_until is not null;
create index work_queue_suspended on trax.work_queue (waits_for, job_id) where waits_for in ('signal', 'jobs');
-- The jobs behind a concurrency key or behind their manifest, in the order in which they leave each
-- lane.
create index work_queue_blocked on trax.work_queue (concurrency_key, lane_id, priority desc, job_id)
    where waits_for = 'key';
create index work_queue_blocked_by_manifest on trax.work_queue (manifest_id, lane_id, priority desc, job_id)
    where waits_for = 'manifest';
-- The jobs of each rate, and those that cost more than its burst.
create index work_queue_rate on trax.work_queue (rate, cost) where rate is not null;
-- The roles with ready SQL jobs.
create index work_queue_sql on trax.work_queue (run_as, job_id) where run_as is not null and waits_for is null;
create index work_queue_expiring on trax.work_queue (expires_at) where expires_at is not null;
create index work_queue_manifest on trax.work_queue (manifest_id) where manifest_id is not null;
-- A second scheduled entry of one manifest is impossible, even without the cycle's lock. Triggers
-- by hand, retries and released jobs are exempt.
create unique index work_queue_one_scheduled_entry on trax.work_queue (manifest_id) where scheduled;

comment on table trax.work_queue is 'The jobs that wait; a row leaves when it is claimed or cancelled, and comes back for a retry.';
comment on column trax.work_queue.job_id is 'Identity of the job; never changes.';
comment on column trax.work_queue.lane_id is 'The lane a claim finds it in: hash of group, task, role, version and rate, as trax.lane_of() returns it.';
comment on column trax.work_queue.queued_at is 'When the job was first queued.';
comment on column trax.work_queue.run_at is 'Not claimable before this time.';
comment on column trax.work_queue.scheduled_for is 'The occurrence of its manifest that it represents; null when enqueued or triggered manually.';
comment on column trax.work_queue.expires_at is 'Ends as failed when it still waits at this time.';
comment on column trax.work_queue.manifest_id is 'The manifest it came from.';
comment on column trax.work_queue.attempts is 'How many attempts have ended.';
comment on column trax.work_queue.max_retries is 'Retries after the first attempt; null takes trax.default_max_retries.';
comment on column trax.work_queue.priority is '0 to 31; within a group a higher one is claimed first.';
comment on column trax.work_queue.scheduled is 'True: the entry that the cycle queued for its manifest, until it is claimed.';
comment on column trax.work_queue.waits_for is 'What keeps it from being claimed: time (until run_at), key (until a job with its concurrency key ends), manifest (until another job of its manifest ends), signal (until one is sent) or jobs (until other jobs end); null when it is ready.';
comment on column trax.work_queue.task is 'The task that runs.';
comment on column trax.work_queue.group_name is 'The group it belongs to.';
comment on column trax.work_queue.manifest is 'Name of the manifest it came from.';
comment on column trax.work_queue.timeout is 'How long one attempt may run; null takes trax.default_timeout.';
comment on column trax.work_queue.retry_delay is 'Delay before the first retry; null takes trax.retry_delay.';
comment on column trax.work_queue.unique_key is 'The unique key it keeps alive.';
comment on column trax.work_queue.concurrency_key is 'Jobs with the same key run one at a time.';
comment on column trax.work_queue.input is 'Input for the task.';
comment on column trax.work_queue.trace is 'Trace context of whoever enqueued it.';
comment on column trax.work_queue.run_as is 'The role whose session runs it, of a SQL job; null for a job of workers.';
comment on column trax.work_queue.steps is 'How many steps it has recorded, a wait that has not ended included; null when none.';
comment on column trax.work_queue.parent_job_id is 'The job that spawned it, or whose steps it undoes.';
comment on column trax.work_queue.wait_until is 'When its wait for a signal or for jobs ends without them; null for never.';
comment on column trax.work_queue.version is 'The version of the program that it needs; null is any.';
comment on column trax.work_queue.rate is 'The rate under which it starts; null if none limits it.';
comment on column trax.work_queue.rate_key is 'The key of the rate that it uses; null for the rate without a key.';
comment on column trax.work_queue.cost is 'How much of the rate it uses; null without a rate.';

create table trax.unique_key (
    key text collate "C" not null,
    job_id bigint not null,
    ended boolean not null default false,
    alive_until timestamptz,
    constraint unique_key_pkey primary key (key),
    constraint unique_key_of_ended_job_has_time check (not ended or alive_until is not null)
);
create index unique_key_ended on trax.unique_key (alive_until) where ended;

comment on table trax.unique_key is 'The unique keys of jobs that wait or run, and those that stay alive after them for their time (unique_for).';
comment on column trax.unique_key.key is 'The key.';
comment on column trax.unique_key.job_id is 'The job that keeps it alive, or kept it.';
comment on column trax.unique_key.ended is 'True: that job has ended, and the key is free from alive_until on.';
comment on column trax.unique_key.alive_until is 'Alive until this time at least; null is no longer than its job.';

select pg_catalog.pg_extension_config_dump('trax.work_queue', '');
select pg_catalog.pg_extension_config_dump('trax.work_queue_job_id_seq', '');
select pg_catalog.pg_extension_config_dump('trax.unique_key', '');
