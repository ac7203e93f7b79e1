-- admission: the jobs that were let into the queue of a group with max_waiting. A row stays behind
-- when its job is claimed, until a call that finds the group full deletes it.

create table trax.admission (
    group_name text collate "C" not null,
    number bigint not null,
    job_id bigint not null,
    constraint admission_pkey primary key (group_name, number)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

comment on table trax.admission is 'The jobs that producers queued into groups with max_waiting, and that may still wait.';
comment on column trax.admission.group_name is 'The group.';
comment on column trax.admission.number is 'The order of the jobs of a group.';
comment on column trax.admission.job_id is 'The job.';

select pg_catalog.pg_extension_config_dump('trax.admission', '');
