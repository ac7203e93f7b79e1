-- lease: the attempts that are being executed, with all data needed to queue the job again.
--
-- A heartbeat changes extended_at, lease_expires_at and timeout_at in place. No index contains
-- them, so the update stays HOT, and most leases end long before a deadline: the reaper reads the
-- table.

create table trax.lease (
    job_id bigint not null,
    lane_id bigint not null,
    token uuid not null,
    started_at timestamptz not null,
    lease_expires_at timestamptz not null,
    timeout_at timestamptz not null,
    reap_at timestamptz,
    queued_at timestamptz not null,
    run_at timestamptz not null,
    scheduled_for timestamptz,
    expires_at timestamptz,
    manifest_id bigint,
    attempt int not null,
    max_retries int,
    priority smallint not null,
    cancel_requested boolean not null default false,
    cancelled boolean not null default false,
    timed_out boolean not null default false,
    limited boolean not null default false,
    worker text not null,
    task text collate "C" not null,
    group_name text collate "C" not null,
    manifest text collate "C",
    timeout interval,
    retry_delay interval,
    unique_key text collate "C",
    concurrency_key text collate "C",
    input jsonb not null,
    trace jsonb,
    -- A dump of 0.1.0 has no value. A claim writes none either, to save 13 bytes of WAL per job.
    extended_at timestamptz default pg_catalog.clock_timestamp(),
    ahead boolean not null default false,
    run_as text collate "C",
    parent_job_id bigint,
    version text collate "C",
    rate text collate "C",
    rate_key text collate "C",
    cost int,
    constraint lease_pkey primary key (job_id),
    constraint lease_attempt_positive check (attempt > 0),
    constraint lease_priority_range check (priority between 0 and 31),
    constraint lease_max_retries_not_negative check (max_retries >= 0),
    constraint lease_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    constraint lease_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days'),
    constraint lease_cancel_has_a_cause check (cancel_requested = (cancelled or timed_out)),
    constraint lease_manifest_has_id check ((manifest is null) = (manifest_id is null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Leases that count towards a limit: of limited groups, of concurrency keys and of manifests. By
-- job, so that a count can begin behind jobs that have ended.
create index lease_limited on trax.lease (group_name, job_id) where limited;
create index lease_concurrency_key on trax.lease (concurrency_key, job_id) where concurrency_key is not null;
create index lease_manifest on trax.lease (manifest_id, job_id) where manifest_id is not null;

-- The attempts of executors; only this index finds a lease after its executor is gone.
create index lease_sql on trax.lease (job_id) where run_as is not null;

comment on table trax.lease is 'The attempts that are being executed: by whom, until when, under which token.';
comment on column trax.lease.job_id is 'The job.';
comment on column trax.lease.lane_id is 'The lane it goes back to when it is queued again.';
comment on column trax.lease.token is 'Fencing token; every outcome and heartbeat must name it.';
comment on column trax.lease.started_at is 'When it was claimed.';
comment on column trax.lease.extended_at is 'When its worker last extended it; null: not since it was claimed, at started_at. From then to lease_expires_at is one lease; after a grace, as long as the next one would be.';
comment on column trax.lease.lease_expires_at is 'When the lease ends unless a heartbeat extends it.';
comment on column trax.lease.timeout_at is 'When the attempt has run too long, and once it is asked to stop, when it was asked. Does not count while it is fetched ahead.';
comment on column trax.lease.reap_at is 'The cycle does not look at its deadlines before this time; null for most: it looks each time.';
comment on column trax.lease.queued_at is 'When the job was first queued.';
comment on column trax.lease.run_at is 'When it became claimable.';
comment on column trax.lease.scheduled_for is 'The occurrence of its manifest that it represents.';
comment on column trax.lease.expires_at is 'Queue time limit of the job.';
comment on column trax.lease.manifest_id is 'The manifest it came from.';
comment on column trax.lease.attempt is 'Number of this attempt, from 1.';
comment on column trax.lease.max_retries is 'Retries after the first attempt; null takes trax.default_max_retries.';
comment on column trax.lease.priority is 'Priority of the job, 0 to 31.';
comment on column trax.lease.cancel_requested is 'True: the worker is asked to stop.';
comment on column trax.lease.cancelled is 'True: it is asked to stop because the job was cancelled.';
comment on column trax.lease.timed_out is 'True: it is asked to stop because it ran too long.';
comment on column trax.lease.limited is 'True: it counts towards the limit of its group.';
comment on column trax.lease.ahead is 'True: its worker claimed it with places, and has not reported since that it began.';
comment on column trax.lease.worker is 'Who executes it.';
comment on column trax.lease.task is 'The task that runs.';
comment on column trax.lease.group_name is 'The group it belongs to.';
comment on column trax.lease.manifest is 'Name of the manifest it came from.';
comment on column trax.lease.timeout is 'How long one attempt may run; null takes trax.default_timeout.';
comment on column trax.lease.retry_delay is 'Delay before the first retry; null takes trax.retry_delay.';
comment on column trax.lease.unique_key is 'The unique key it keeps alive.';
comment on column trax.lease.concurrency_key is 'Jobs with the same key run one at a time.';
comment on column trax.lease.input is 'Input for the task.';
comment on column trax.lease.trace is 'Trace context of whoever enqueued it.';
comment on column trax.lease.run_as is 'The role whose session runs it, of a SQL job; null for a job of workers.';
comment on column trax.lease.parent_job_id is 'The job that spawned it, or whose steps it undoes.';
comment on column trax.lease.version is 'The version of the program that it needs; null is any.';
comment on column trax.lease.rate is 'The rate under which it started; null if none limits it.';
comment on column trax.lease.rate_key is 'The key of the rate that it used.';
comment on column trax.lease.cost is 'How much of the rate it used.';

select pg_catalog.pg_extension_config_dump('trax.lease', '');
