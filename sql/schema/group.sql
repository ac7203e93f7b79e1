-- group: a named set of manifests and jobs that share a priority, an enabled flag and a limit. A
-- group without a row has the defaults of this table, so that enqueueing into a new group writes
-- nothing here.

create table trax.manifest_group (
    name text collate "C" not null,
    enabled boolean not null default true,
    priority smallint not null default 0,
    max_active_jobs int,
    max_per_key int not null default 1,
    created_at timestamptz not null default pg_catalog.clock_timestamp(),
    updated_at timestamptz not null default pg_catalog.clock_timestamp(),
    applied boolean not null default false,
    source text collate "C",
    rate text collate "C",
    max_waiting int,
    overflow text not null default 'reject',
    constraint manifest_group_pkey primary key (name),
    constraint manifest_group_name_length check (pg_catalog.octet_length(name) between 1 and 255),
    constraint manifest_group_priority_range check (priority between 0 and 31),
    constraint manifest_group_max_active_jobs_positive check (max_active_jobs > 0),
    constraint manifest_group_max_per_key_positive check (max_per_key > 0),
    constraint manifest_group_max_waiting_positive check (max_waiting > 0),
    constraint manifest_group_overflow_known check (overflow in ('reject', 'drop_newest', 'drop_oldest'))
);

comment on table trax.manifest_group is 'Settings of groups; a group that is not here has the defaults.';
comment on column trax.manifest_group.name is 'The group, 1 to 255 bytes.';
comment on column trax.manifest_group.enabled is 'False: none of its jobs is claimed and none of its manifests is queued.';
comment on column trax.manifest_group.priority is '0 to 31; claims take jobs of a higher group first.';
comment on column trax.manifest_group.max_active_jobs is 'How many of its jobs may run at once; null is no limit.';
comment on column trax.manifest_group.max_per_key is 'How many jobs of one concurrency key may run at once.';
comment on column trax.manifest_group.created_at is 'When the group was first configured.';
comment on column trax.manifest_group.updated_at is 'When the group was last configured.';
comment on column trax.manifest_group.applied is 'True: created by trax.apply(), which may prune it.';
comment on column trax.manifest_group.rate is 'The rate under which its jobs start, each with a cost of 1; null if none limits them.';
comment on column trax.manifest_group.source is 'Whose documents say what it is: the source given to trax.apply(), which alone may change and prune it by document.';
comment on column trax.manifest_group.max_waiting is 'How many jobs that producers queued may wait in it; null is no limit.';
comment on column trax.manifest_group.overflow is 'What happens to jobs beyond max_waiting: reject (the call fails), drop_newest or drop_oldest (they end as cancelled).';

create index manifest_group_limited on trax.manifest_group (name) where max_active_jobs is not null;
-- The groups with a rate or another priority than the default, and disabled ones.
create index manifest_group_special on trax.manifest_group (name)
    where priority <> 0 or not enabled or rate is not null;

create index manifest_group_full on trax.manifest_group (name) where max_waiting is not null;

select pg_catalog.pg_extension_config_dump('trax.manifest_group', '');
