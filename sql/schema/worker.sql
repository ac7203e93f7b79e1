-- worker: who executes jobs.

create table trax.worker (
    name text collate "C" not null,
    started_at timestamptz not null,
    last_seen_at timestamptz not null,
    info jsonb not null default '{}',
    constraint worker_pkey primary key (name),
    constraint worker_name_length check (pg_catalog.octet_length(name) between 1 and 255)
);

comment on table trax.worker is 'Registry of workers.';
comment on column trax.worker.name is 'Name of the worker, the same as in trax.lease and trax.run.';
comment on column trax.worker.started_at is 'When it registered.';
comment on column trax.worker.last_seen_at is 'When it was last seen.';
comment on column trax.worker.info is 'What it reports about itself: host, process, version, tasks.';

select pg_catalog.pg_extension_config_dump('trax.worker', '');
