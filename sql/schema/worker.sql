-- worker: the processes that execute jobs. A report changes a row in place, because no index
-- contains the changed columns.

create table trax.worker (
    name text collate "C" not null,
    started_at timestamptz not null,
    last_seen_at timestamptz not null,
    info jsonb not null default '{}',
    period interval,
    stopping boolean not null default false,
    constraint worker_pkey primary key (name),
    constraint worker_name_length check (pg_catalog.octet_length(name) between 1 and 255),
    constraint worker_period_range check (period > interval '0' and period <= interval '3660 days')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table trax.worker is 'Registry of workers.';
comment on column trax.worker.name is 'Name of the worker, the same as in trax.lease and trax.run.';
comment on column trax.worker.started_at is 'When it registered.';
comment on column trax.worker.last_seen_at is 'When it was last seen.';
comment on column trax.worker.period is 'How often it reports (trax.report_worker); null: it does not, and is noted by its claims.';
comment on column trax.worker.stopping is 'True: it claims no more, and ends when its jobs have.';
comment on column trax.worker.info is 'What it reports about itself: host, process, version, tasks.';

select pg_catalog.pg_extension_config_dump('trax.worker', '');
