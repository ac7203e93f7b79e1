-- progress: the last reported progress of attempts that are being executed.
--
-- Beside the lease and not in it: a report neither waits for a heartbeat nor makes one wait, and
-- leaves no dead version of a row that claims and outcomes read. A job that reports nothing has no
-- row here. Only the row with the token of the current lease counts; the cleanup deletes the
-- others.

create table trax.progress (
    job_id bigint not null,
    token uuid not null,
    reported_at timestamptz not null,
    progress jsonb not null,
    constraint progress_pkey primary key (job_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table trax.progress is 'How far attempts that are being executed have come, as last reported; trax.job shows it.';
comment on column trax.progress.job_id is 'The job.';
comment on column trax.progress.token is 'The lease under which it was reported; with another one it no longer counts.';
comment on column trax.progress.reported_at is 'When it was reported.';
comment on column trax.progress.progress is 'What was reported: a number, a text or a small document.';

select pg_catalog.pg_extension_config_dump('trax.progress', '');
