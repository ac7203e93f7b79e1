-- unreadable_job: live jobs whose input or trace is damaged in its TOAST table.

create table trax.unreadable_job (
    job_id bigint not null,
    error text not null,
    found_at timestamptz not null,
    constraint unreadable_job_pkey primary key (job_id)
);

comment on table trax.unreadable_job is
    'Jobs that wait or are executed and cannot be read: each is tried again, and goes on when it is repaired. A row is removed when its job can be read or has ended.';
comment on column trax.unreadable_job.job_id is 'The job.';
comment on column trax.unreadable_job.error is 'Message of the error that reading it gave.';
comment on column trax.unreadable_job.found_at is 'When it could not be read first.';

select pg_catalog.pg_extension_config_dump('trax.unreadable_job', '');
