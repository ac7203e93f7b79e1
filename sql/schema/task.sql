-- task: the defaults of tasks. A task without a row has those of the settings.

create table trax.task (
    name text collate "C" not null,
    max_retries int,
    retry_delay interval,
    backoff float8,
    retry_delay_max interval,
    timeout interval,
    on_final_failure text not null default 'dead_letter',
    created_at timestamptz not null default pg_catalog.clock_timestamp(),
    updated_at timestamptz not null default pg_catalog.clock_timestamp(),
    applied boolean not null default false,
    source text collate "C",
    constraint task_pkey primary key (name),
    constraint task_name_length check (pg_catalog.octet_length(name) between 1 and 255),
    constraint task_max_retries_not_negative check (max_retries >= 0),
    constraint task_retry_delay_range check (retry_delay >= interval '0' and retry_delay <= interval '3660 days'),
    constraint task_backoff_range check (backoff between 1 and 100),
    constraint task_retry_delay_max_range check (retry_delay_max >= interval '0' and retry_delay_max <= interval '3660 days'),
    constraint task_timeout_range check (timeout > interval '0' and timeout <= interval '3660 days'),
    constraint task_on_final_failure_known check (on_final_failure in ('dead_letter', 'acknowledge'))
);

comment on table trax.task is 'Defaults of tasks, for jobs that say nothing else and whose manifest does not; a task that is not here has those of the settings.';
comment on column trax.task.name is 'The task, 1 to 255 bytes.';
comment on column trax.task.max_retries is 'Retries after the first attempt; null takes trax.default_max_retries.';
comment on column trax.task.retry_delay is 'Delay before the first retry; null takes trax.retry_delay.';
comment on column trax.task.backoff is 'The factor of each further delay; null takes trax.retry_backoff.';
comment on column trax.task.retry_delay_max is 'The longest delay; null takes trax.retry_delay_max.';
comment on column trax.task.timeout is 'How long one attempt may run; null takes trax.default_timeout.';
comment on column trax.task.on_final_failure is 'What a job leaves that fails for good: dead_letter (it waits for a person) or acknowledge (a letter that is acknowledged already).';
comment on column trax.task.created_at is 'When the task was first configured.';
comment on column trax.task.updated_at is 'When the task was last configured.';
comment on column trax.task.applied is 'True: created by trax.apply(), which may prune it.';
comment on column trax.task.source is 'Whose documents say what it is: the source given to trax.apply(), which alone may change and prune it by document.';

select pg_catalog.pg_extension_config_dump('trax.task', '');
