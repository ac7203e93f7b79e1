-- work_queue: the jobs that wait, ready or due later.

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
    constraint work_queue_pkey primary key (job_id),
    constraint work_queue_waits_for_known check (waits_for in ('time', 'key', 'manifest')),
    constraint work_queue_priority_range check (priority between 0 and 31),
    constraint work_queue_attempts_not_negative check (attempts >= 0),
    constraint work_queue_max_retries_not_negative check (max_retries >= 0),
    constraint work_queue_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    constraint work_queue_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days'),
    constraint work_queue_manifest_has_id check ((manifest is null) = (manifest_id is null)),
    constraint work_queue_scheduled_entry_is_fresh check (
        not scheduled
        or (manifest_id is not null and attempts = 0)
    )
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The order in which a claim reads one lane, exactly.
create index work_queue_ready on trax.work_queue (lane_id, priority desc, job_id) where waits_for is null;
create index work_queue_delayed on trax.work_queue (run_at) where waits_for = 'time';
-- The jobs behind a concurrency key or behind their manifest, in the order in which they come out
-- of each lane.
create index work_queue_blocked on trax.work_queue (concurrency_key, lane_id, priority desc, job_id)
    where waits_for = 'key';
create index work_queue_blocked_by_manifest on trax.work_queue (manifest_id, lane_id, priority desc, job_id)
    where waits_for = 'manifest';
create index work_queue_expiring on trax.work_queue (expires_at) where expires_at is not null;
create index work_queue_manifest on trax.work_queue (manifest_id) where manifest_id is not null;
-- A second scheduled entry of one manifest is impossible, even without the cycle's lock. Triggers
-- by hand, retries and released jobs are exempt.
create unique index work_queue_one_scheduled_entry on trax.work_queue (manifest_id) where scheduled;

comment on table trax.work_queue is 'The jobs that wait; a row leaves when it is claimed or cancelled, and comes back for a retry.';
comment on column trax.work_queue.job_id is 'Identity of the job; never changes.';
comment on column trax.work_queue.lane_id is 'The lane a claim finds it in: hash of group and task, as trax.lane_of() returns it.';
comment on column trax.work_queue.queued_at is 'When the job was first queued.';
comment on column trax.work_queue.run_at is 'Not claimable before this time.';
comment on column trax.work_queue.scheduled_for is 'The occurrence of its manifest that it represents; null when enqueued or triggered manually.';
comment on column trax.work_queue.expires_at is 'Ends as failed when it still waits at this time.';
comment on column trax.work_queue.manifest_id is 'The manifest it came from.';
comment on column trax.work_queue.attempts is 'How many attempts have ended.';
comment on column trax.work_queue.max_retries is 'Retries after the first attempt; null takes trax.default_max_retries.';
comment on column trax.work_queue.priority is '0 to 31; within a group a higher one is claimed first.';
comment on column trax.work_queue.scheduled is 'True: the entry that the cycle queued for its manifest, until it is claimed.';
comment on column trax.work_queue.waits_for is 'What keeps it from being claimed: time (until run_at), key (until a job with its concurrency key ends) or manifest (until another job of its manifest ends); null when it is ready.';
comment on column trax.work_queue.task is 'The task that runs.';
comment on column trax.work_queue.group_name is 'The group it belongs to.';
comment on column trax.work_queue.manifest is 'Name of the manifest it came from.';
comment on column trax.work_queue.timeout is 'How long one attempt may run; null takes trax.default_timeout.';
comment on column trax.work_queue.retry_delay is 'Delay before the first retry; null takes trax.retry_delay.';
comment on column trax.work_queue.unique_key is 'The unique key it keeps alive.';
comment on column trax.work_queue.concurrency_key is 'Jobs with the same key run one at a time.';
comment on column trax.work_queue.input is 'Input for the task.';
comment on column trax.work_queue.trace is 'Trace context of whoever enqueued it.';

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

-- A lane is what a claim picks from: the waiting jobs of one task in one group. Filters, priorities
-- and switches of groups choose lanes and never touch a waiting row. A lane is written nowhere: it
-- is a hash of the two names, and there while a row is.
create function trax.lane_of(
    group_name text,
    task text
)
returns bigint
language c immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_lane_of';
comment on function trax.lane_of(text, text) is
    'Internal. Returns the lane of a group and a task: what trax.work_queue.lane_id must be for a row that is written by hand.';

create view trax.lane as
with recursive found as (
    (
        select q.lane_id, q.group_name, q.task, q.job_id, q.run_at
        from trax.work_queue q
        where q.waits_for is null
        order by q.lane_id, q.priority desc, q.job_id
        limit 1
    )
    union all
    select n.lane_id, n.group_name, n.task, n.job_id, n.run_at
    from found f
    cross join lateral (
        select q.lane_id, q.group_name, q.task, q.job_id, q.run_at
        from trax.work_queue q
        where q.waits_for is null
            and q.lane_id operator(pg_catalog.>) f.lane_id
        order by q.lane_id, q.priority desc, q.job_id
        limit 1
    ) n
)
select f.lane_id, f.group_name, f.task, f.job_id, f.run_at
from found f;
comment on view trax.lane is 'The pairs of group and task that have a job ready to be claimed, with the first of these; found one after the other, whatever waits in each.';
comment on column trax.lane.lane_id is 'Hash of group and task.';
comment on column trax.lane.group_name is 'The group.';
comment on column trax.lane.task is 'The task.';
comment on column trax.lane.job_id is 'The job of the lane that is claimed first.';
comment on column trax.lane.run_at is 'When that job became claimable.';

select pg_catalog.pg_extension_config_dump('trax.work_queue', '');
select pg_catalog.pg_extension_config_dump('trax.work_queue_job_id_seq', '');
select pg_catalog.pg_extension_config_dump('trax.unique_key', '');
