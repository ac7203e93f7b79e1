-- lease_extension: heartbeats that found the row of their lease locked.
--
-- A heartbeat waits for no lock: if another transaction has locked the lease's row (an outcome or a
-- cancel that is not committed yet) it adds a row here, for which no session waits either. The
-- reaper reads the rows of a lease that seems to have expired.
create table trax.lease_extension (
    job_id bigint not null,
    token uuid not null,
    extended_at timestamptz not null,
    lease_expires_at timestamptz not null,
    ahead boolean not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create index lease_extension_job on trax.lease_extension (job_id);
alter table trax.lease_extension replica identity full;

comment on table trax.lease_extension is 'Heartbeats of leases whose rows other transactions had locked; removed soon after they have expired.';
comment on column trax.lease_extension.job_id is 'The job.';
comment on column trax.lease_extension.token is 'The lease that is extended; with another one it no longer counts.';
comment on column trax.lease_extension.extended_at is 'When the heartbeat came.';
comment on column trax.lease_extension.lease_expires_at is 'Until when the lease is extended.';
comment on column trax.lease_extension.ahead is 'True: it reported that the job has not begun.';

select pg_catalog.pg_extension_config_dump('trax.lease_extension', '');
