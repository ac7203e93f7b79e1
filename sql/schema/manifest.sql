-- manifest: a stored definition; manifest_state: its next run; manifest_dependency: the manifests
-- whose success it waits for.

create table trax.manifest (
    manifest_id bigint generated always as identity,
    name text collate "C" not null,
    task text collate "C" not null,
    input jsonb not null default '{}',
    group_name text collate "C" not null default 'default',
    cron text,
    every interval,
    run_at timestamptz,
    depends_mode text,
    dormant boolean not null default false,
    timezone text not null default 'UTC',
    priority smallint not null default 0,
    max_retries int,
    retry_delay interval,
    timeout interval,
    misfire text not null default 'fire_once',
    misfire_threshold interval not null default '60 s',
    misfire_limit int not null default 10,
    overlap text not null default 'queue',
    max_concurrency int not null default 1,
    variance interval,
    exclusions jsonb,
    starts_at timestamptz,
    ends_at timestamptz,
    enabled boolean not null default true,
    disabled_reason text,
    applied boolean not null default false,
    created_at timestamptz not null default pg_catalog.clock_timestamp(),
    updated_at timestamptz not null default pg_catalog.clock_timestamp(),
    on_dead_letter text not null default 'stop',
    source text collate "C",
    run_as text collate "C",
    constraint manifest_pkey primary key (manifest_id),
    constraint manifest_only_sql_runs_as_a_role check (run_as is null or task = 'sql'),
    constraint manifest_name_key unique (name),
    constraint manifest_name_length check (pg_catalog.octet_length(name) between 1 and 255),
    constraint manifest_task_length check (pg_catalog.octet_length(task) between 1 and 255),
    constraint manifest_group_name_length check (pg_catalog.octet_length(group_name) between 1 and 255),
    constraint manifest_has_one_schedule check (pg_catalog.num_nonnulls(cron, every, run_at, depends_mode) <= 1),
    constraint manifest_cron_length check (pg_catalog.octet_length(cron) <= 255),
    constraint manifest_every_range check (every > interval '0' and every <= interval '3660 days'),
    constraint manifest_depends_mode_known check (depends_mode in ('all', 'any')),
    constraint manifest_priority_range check (priority between 0 and 31),
    constraint manifest_max_retries_range check (max_retries >= 0),
    constraint manifest_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days'),
    constraint manifest_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    constraint manifest_misfire_known check (misfire in ('fire_once', 'fire_all', 'skip')),
    constraint manifest_misfire_threshold_range check (
        misfire_threshold >= interval '0'
        and misfire_threshold <= interval '3660 days'
    ),
    constraint manifest_misfire_limit_positive check (misfire_limit > 0),
    constraint manifest_overlap_known check (overlap in ('queue', 'skip', 'allow')),
    constraint manifest_on_dead_letter_known check (on_dead_letter in ('stop', 'continue')),
    constraint manifest_max_concurrency_positive check (max_concurrency > 0),
    constraint manifest_variance_range check (variance >= interval '0' and variance <= interval '3660 days'),
    constraint manifest_dormant_depends check (not dormant or depends_mode is not null),
    constraint manifest_ends_after_start check (ends_at > starts_at)
);

comment on table trax.manifest is 'Stored definitions of jobs: what runs, when, and how failures are treated. Written by trax.schedule().';
comment on column trax.manifest.manifest_id is 'Identity of the definition; a name scheduled again after trax.unschedule() gets a new one.';
comment on column trax.manifest.name is 'Unique name, 1 to 255 bytes.';
comment on column trax.manifest.task is 'The task that runs, 1 to 255 bytes.';
comment on column trax.manifest.input is 'Input of every run.';
comment on column trax.manifest.group_name is 'The group it belongs to.';
comment on column trax.manifest.cron is 'Cron expression of 5 or 6 fields, when the schedule is of that kind.';
comment on column trax.manifest.every is 'Time from a success to the next run, when the schedule is of that kind.';
comment on column trax.manifest.run_at is 'The one time it runs, when the schedule is of that kind.';
comment on column trax.manifest.depends_mode is 'Whether all parents or any parent must succeed, when the schedule is of that kind.';
comment on column trax.manifest.dormant is 'True: a dependent that runs only when its parent activates it.';
comment on column trax.manifest.timezone is 'IANA name of the zone in which the cron expression is read.';
comment on column trax.manifest.priority is 'Priority of its jobs, 0 to 31.';
comment on column trax.manifest.max_retries is 'Retries after the first attempt; null takes trax.default_max_retries.';
comment on column trax.manifest.retry_delay is 'Delay before the first retry; null takes trax.retry_delay.';
comment on column trax.manifest.timeout is 'How long one attempt may run; null takes trax.default_timeout.';
comment on column trax.manifest.misfire is 'What a late run becomes: fire_once, fire_all or skip.';
comment on column trax.manifest.misfire_threshold is 'How late a run must be to count as missed.';
comment on column trax.manifest.misfire_limit is 'How many missed runs fire_all makes up for.';
comment on column trax.manifest.overlap is 'What happens when it is due while it runs: queue, skip or allow.';
comment on column trax.manifest.max_concurrency is 'How many of its jobs may run at once.';
comment on column trax.manifest.variance is 'Longest random delay added to each occurrence.';
comment on column trax.manifest.exclusions is 'Days and times at which it does not run, in its zone: an object with any of days_of_week (["SAT", 0]), dates (["2026-12-25", "12-26"]), date_ranges ([{"from": "2026-12-24", "to": "2027-01-01"}]) and time_windows ([{"from": "22:00", "to": "06:00", "days_of_week": ["FRI"]}]).';
comment on column trax.manifest.starts_at is 'No run before this time.';
comment on column trax.manifest.ends_at is 'No run from this time on.';
comment on column trax.manifest.on_dead_letter is 'What an unresolved dead letter means for its schedule: stop (it is parked until a person resolves that) or continue (the next run comes as if the failed one had ended well).';
comment on column trax.manifest.enabled is 'False: it is never due.';
comment on column trax.manifest.disabled_reason is 'Why it is disabled, when trax did it by itself.';
comment on column trax.manifest.applied is 'True: created by trax.apply(), which may prune it.';
comment on column trax.manifest.source is 'Whose documents say what it is: the source given to trax.apply(), which alone may change and prune it by document.';
comment on column trax.manifest.run_as is 'The role whose session runs it, of a statement; null for a task of workers.';
comment on column trax.manifest.created_at is 'When it was first scheduled.';
comment on column trax.manifest.updated_at is 'When its definition was last changed.';

-- Hot: one narrow row for each manifest, so that firing never rewrites a definition. A parked
-- manifest has next_run_at null, costs the cycle nothing, and keeps in parked_due_at the occurrence
-- to decide again once the reason has ended.
create table trax.manifest_state (
    manifest_id bigint not null,
    group_name text collate "C" not null,
    next_run_at timestamptz,
    next_scheduled_for timestamptz,
    parked_on text,
    parked_since timestamptz,
    parked_due_at timestamptz,
    last_scheduled_for timestamptz,
    last_queued_at timestamptz,
    last_success_at timestamptz,
    made_up int not null default 0,
    skipped bigint not null default 0,
    last_skipped_for timestamptz,
    evaluation_failures int not null default 0,
    evaluation_failed_since timestamptz,
    evaluation_error text,
    decided_at timestamptz,
    constraint manifest_state_pkey primary key (manifest_id),
    constraint manifest_state_parked_on_known check (
        parked_on in ('disabled', 'group_disabled', 'dead_letter', 'queued', 'executing', 'outcome', 'ended')
    ),
    constraint manifest_state_parked_is_not_due check (parked_on is null or next_run_at is null),
    constraint manifest_state_evaluation_failures_not_negative check (evaluation_failures >= 0)
);
-- The first shows an idle cycle with one probe that nothing is due; the second finds each group's
-- share.
create index manifest_state_due on trax.manifest_state (next_run_at) where next_run_at is not null;
create index manifest_state_due_in_group on trax.manifest_state (group_name, next_run_at) where next_run_at is not null;
create index manifest_state_broken on trax.manifest_state (manifest_id) where evaluation_error is not null;
create index manifest_state_parked on trax.manifest_state (parked_since)
    where parked_on in ('group_disabled', 'dead_letter', 'queued', 'executing', 'outcome');
comment on table trax.manifest_state is 'When each manifest is due next, or what it is parked on; one row for each manifest.';
comment on column trax.manifest_state.manifest_id is 'The manifest.';
comment on column trax.manifest_state.group_name is 'The group of the manifest, for the fair share of each group.';
comment on column trax.manifest_state.next_scheduled_for is 'The occurrence that next_run_at is for; earlier than it by the random part of its variance.';
comment on column trax.manifest_state.made_up is 'How many missed occurrences fire_all has made up for in a row.';
comment on column trax.manifest_state.skipped is 'How many occurrences were dropped by its overlap or misfire policy; at most 1,000 of one outage are counted.';
comment on column trax.manifest_state.last_skipped_for is 'The last occurrence that was dropped.';
comment on column trax.manifest_state.next_run_at is 'When it is due; null while parked, and for a manifest that only runs when triggered.';
comment on column trax.manifest_state.parked_on is 'What it waits for: disabled, group_disabled, dead_letter, queued (its entry waits), executing (it runs and may not overlap), outcome (its next time follows from the outcome), ended (no further occurrence).';
comment on column trax.manifest_state.parked_since is 'When it was parked.';
comment on column trax.manifest_state.parked_due_at is 'The occurrence it was parked at, due again when the reason has ended; set until that occurrence was handled.';
comment on column trax.manifest_state.last_scheduled_for is 'The last occurrence that became a job.';
comment on column trax.manifest_state.last_queued_at is 'When the cycle last queued it.';
comment on column trax.manifest_state.last_success_at is 'When one of its jobs last completed.';
comment on column trax.manifest_state.evaluation_failures is 'Failed evaluations in a row, apart from those that the server caused.';
comment on column trax.manifest_state.evaluation_failed_since is 'When the first of those failed.';
comment on column trax.manifest_state.evaluation_error is 'The error of the last failed evaluation.';
comment on column trax.manifest_state.decided_at is 'When trax decided the next run; one that was decided while the clock was ahead is decided again.';

create table trax.manifest_dependency (
    child_id bigint not null,
    parent_id bigint not null,
    satisfied_at timestamptz,
    satisfied_by_job_id bigint,
    constraint manifest_dependency_pkey primary key (child_id, parent_id),
    constraint manifest_dependency_is_not_itself check (child_id <> parent_id)
);
create index manifest_dependency_parent on trax.manifest_dependency (parent_id);

comment on table trax.manifest_dependency is 'Edges from a dependent manifest to the parents whose success it waits for.';
comment on column trax.manifest_dependency.child_id is 'The dependent manifest.';
comment on column trax.manifest_dependency.parent_id is 'The manifest whose success satisfies the edge.';
comment on column trax.manifest_dependency.satisfied_at is 'When the parent succeeded; null again once the dependent has run.';
comment on column trax.manifest_dependency.satisfied_by_job_id is 'The job of the parent that succeeded.';

select pg_catalog.pg_extension_config_dump('trax.manifest', '');
select pg_catalog.pg_extension_config_dump('trax.manifest_manifest_id_seq', '');
select pg_catalog.pg_extension_config_dump('trax.manifest_state', '');
select pg_catalog.pg_extension_config_dump('trax.manifest_dependency', '');
