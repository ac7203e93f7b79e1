-- run: the attempts that ended. Append only, one partition for each UTC day of finished_at.
--
-- Daily partitions are plain tables, not members of the extension, so that a dump contains their
-- definition and their rows. The cycle creates them ahead; rows without a partition go to
-- run_default.

create table trax.run (
    job_id bigint not null,
    queued_at timestamptz not null,
    run_at timestamptz not null,
    scheduled_for timestamptz,
    started_at timestamptz,
    finished_at timestamptz not null,
    manifest_id bigint,
    attempt int not null,
    priority smallint not null,
    final boolean not null,
    state text not null,
    failure_kind text,
    task text collate "C" not null,
    group_name text collate "C" not null,
    manifest text collate "C",
    worker text,
    error text,
    input jsonb not null,
    detail jsonb,
    output jsonb,
    parent_job_id bigint,
    steps jsonb,
    version text collate "C",
    rate text collate "C",
    rate_key text collate "C",
    cost int,
    max_retries int,
    timeout interval,
    retry_delay interval,
    concurrency_key text collate "C",
    trace jsonb,
    constraint run_state_known check (state in ('completed', 'failed', 'cancelled')),
    constraint run_failure_kind_known check (failure_kind in ('error', 'lease_expired', 'timeout', 'expired')),
    constraint run_failure_kind_only_when_failed check ((state = 'failed') = (failure_kind is not null)),
    constraint run_only_failures_are_retried check (final or state = 'failed'),
    constraint run_attempt_not_negative check (attempt >= 0)
) partition by range (finished_at);

create table trax.run_default partition of trax.run default;

-- History has no key: rows are never changed, and deleted only from the default partition. For
-- those deletes a publication needs an identity.
alter table trax.run replica identity full;
alter table trax.run_default replica identity full;

-- Each partition has its own indexes. An index of the parent would be created for a partition
-- twice, by a restored dump and by attaching it.
create index run_default_job on trax.run_default (job_id);
create index run_default_manifest on trax.run_default (manifest_id, finished_at) where manifest_id is not null;
create index run_default_failed on trax.run_default (finished_at) where final and state = 'failed';

comment on table trax.run is 'The attempts that ended; never changed again. Whole days are dropped after trax.run_retention.';
comment on table trax.run_default is 'Rows of trax.run for which no daily partition existed.';
comment on column trax.run.job_id is 'The job.';
comment on column trax.run.queued_at is 'When the job was first queued.';
comment on column trax.run.run_at is 'When this attempt became claimable.';
comment on column trax.run.scheduled_for is 'The occurrence of its manifest that it was for.';
comment on column trax.run.started_at is 'When it was claimed; null when it was cancelled or expired in the queue.';
comment on column trax.run.finished_at is 'When its outcome was recorded.';
comment on column trax.run.manifest_id is 'The manifest it came from.';
comment on column trax.run.attempt is 'Number of the attempt, from 1; 0 when it never started.';
comment on column trax.run.priority is 'Priority of the job, 0 to 31.';
comment on column trax.run.final is 'True: the job ended with this attempt; false: it was queued again.';
comment on column trax.run.state is 'completed, failed or cancelled.';
comment on column trax.run.failure_kind is 'error, lease_expired, timeout or expired; null unless failed.';
comment on column trax.run.task is 'The task that ran.';
comment on column trax.run.group_name is 'The group it belonged to.';
comment on column trax.run.manifest is 'Name of the manifest it came from.';
comment on column trax.run.worker is 'Who executed it.';
comment on column trax.run.error is 'What went wrong, cut at 64 KiB.';
comment on column trax.run.input is 'Input of the task.';
comment on column trax.run.detail is 'Whatever the worker reported about the failure, or of a completion what was left out of its output.';
comment on column trax.run.output is 'What the task returned.';
comment on column trax.run.parent_job_id is 'The job that spawned it, or whose steps it undoes.';
comment on column trax.run.steps is 'The steps of the job, in the order of recording, in the row of its last attempt; trax.read_steps() returns them as rows. Null when it recorded none.';
comment on column trax.run.version is 'The version of the program that it needed; null was any.';
comment on column trax.run.rate is 'The rate under which it started; null if none limited it.';
comment on column trax.run.rate_key is 'The key of the rate that it used.';
comment on column trax.run.cost is 'How much of the rate it used.';
comment on column trax.run.max_retries is 'The retries it was allowed; null takes trax.default_max_retries.';
comment on column trax.run.timeout is 'How long one attempt may run.';
comment on column trax.run.retry_delay is 'Delay before the first retry.';
comment on column trax.run.concurrency_key is 'The concurrency key that it had.';
comment on column trax.run.trace is 'Trace context of the job.';

select pg_catalog.pg_extension_config_dump('trax.run', '');
select pg_catalog.pg_extension_config_dump('trax.run_default', '');
