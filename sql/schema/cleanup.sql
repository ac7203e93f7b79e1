-- cleanup: the failed steps of the cycle.

create table trax.failed_step (
    step text collate "C" not null,
    error text not null,
    failed_since timestamptz not null,
    failed_at timestamptz not null,
    constraint failed_step_pkey primary key (step)
);

comment on table trax.failed_step is 'Steps of the cycle and of the cleanup that failed when they were last tried; a row is removed when its step works again.';
comment on column trax.failed_step.step is 'The step, or what it cleans up.';
comment on column trax.failed_step.error is 'Message of the last error.';
comment on column trax.failed_step.failed_since is 'When it first failed.';
comment on column trax.failed_step.failed_at is 'When it last failed.';

select pg_catalog.pg_extension_config_dump('trax.failed_step', '');
