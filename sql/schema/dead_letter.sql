-- dead_letter: jobs that failed for good and wait for a user's decision.

create table trax.dead_letter (
    id bigint generated always as identity,
    job_id bigint not null,
    manifest_id bigint,
    status text not null default 'awaiting_intervention',
    attempts int not null,
    max_retries int,
    priority smallint not null,
    created_at timestamptz not null,
    resolved_at timestamptz,
    requeued_job_id bigint,
    manifest text collate "C",
    task text collate "C" not null,
    group_name text collate "C" not null,
    timeout interval,
    retry_delay interval,
    unique_key text collate "C",
    concurrency_key text collate "C",
    reason text not null,
    last_error text,
    resolution_note text,
    input jsonb not null,
    trace jsonb,
    run_as text collate "C",
    steps jsonb,
    undone boolean not null default false,
    version text collate "C",
    rate text collate "C",
    rate_key text collate "C",
    cost int,
    constraint dead_letter_pkey primary key (id),
    constraint dead_letter_job_id_key unique (job_id),
    constraint dead_letter_priority_range check (priority between 0 and 31),
    constraint dead_letter_attempts_not_negative check (attempts >= 0),
    constraint dead_letter_max_retries_not_negative check (max_retries >= 0),
    constraint dead_letter_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    constraint dead_letter_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days'),
    constraint dead_letter_manifest_has_id check ((manifest is null) = (manifest_id is null)),
    constraint dead_letter_status_known check (status in ('awaiting_intervention', 'requeued', 'acknowledged')),
    constraint dead_letter_resolved_has_time check ((status = 'awaiting_intervention') = (resolved_at is null)),
    constraint dead_letter_requeued_has_job check ((status = 'requeued') = (requeued_job_id is not null))
);
create unique index dead_letter_one_open_for_manifest
    on trax.dead_letter (manifest_id)
    where status = 'awaiting_intervention';
create index dead_letter_manifest on trax.dead_letter (manifest_id) where manifest_id is not null;
create index dead_letter_resolved on trax.dead_letter (resolved_at) where resolved_at is not null;

comment on table trax.dead_letter is 'Jobs that failed for good and wait for a person.';
comment on column trax.dead_letter.id is 'Identity of the dead letter.';
comment on column trax.dead_letter.job_id is 'The job that failed.';
comment on column trax.dead_letter.manifest_id is 'The manifest it came from; while this is unresolved its schedule is stopped, unless on_dead_letter is continue.';
comment on column trax.dead_letter.status is 'awaiting_intervention, requeued or acknowledged.';
comment on column trax.dead_letter.attempts is 'How many attempts it had.';
comment on column trax.dead_letter.max_retries is 'The retries it was allowed; null takes trax.default_max_retries.';
comment on column trax.dead_letter.priority is 'Priority of the job, 0 to 31.';
comment on column trax.dead_letter.created_at is 'When it failed for good.';
comment on column trax.dead_letter.resolved_at is 'When it was requeued or acknowledged.';
comment on column trax.dead_letter.requeued_job_id is 'The job that took its place.';
comment on column trax.dead_letter.manifest is 'Name of the manifest it came from.';
comment on column trax.dead_letter.task is 'The task that failed.';
comment on column trax.dead_letter.group_name is 'The group it belongs to.';
comment on column trax.dead_letter.timeout is 'How long one attempt may run.';
comment on column trax.dead_letter.retry_delay is 'Delay before the first retry.';
comment on column trax.dead_letter.unique_key is 'The unique key the job had.';
comment on column trax.dead_letter.concurrency_key is 'The concurrency key the job had.';
comment on column trax.dead_letter.reason is 'Why it became a dead letter.';
comment on column trax.dead_letter.last_error is 'The error of the last attempt.';
comment on column trax.dead_letter.resolution_note is 'The note of the person who resolved it.';
comment on column trax.dead_letter.input is 'Input of the job.';
comment on column trax.dead_letter.trace is 'Trace context of the job.';
comment on column trax.dead_letter.run_as is 'The role whose session ran it, of a SQL job; null for a job of workers.';
comment on column trax.dead_letter.steps is 'The steps that the job has recorded: a job that is queued in its place goes on after them.';
comment on column trax.dead_letter.undone is 'True: jobs were queued that undo its steps, so that a job in its place must begin from the start.';
comment on column trax.dead_letter.version is 'The version of the program that it needed; null was any.';
comment on column trax.dead_letter.rate is 'The rate under which it started; null if none limited it.';
comment on column trax.dead_letter.rate_key is 'The key of the rate that it used.';
comment on column trax.dead_letter.cost is 'How much of the rate it used.';

select pg_catalog.pg_extension_config_dump('trax.dead_letter', '');
select pg_catalog.pg_extension_config_dump('trax.dead_letter_id_seq', '');
