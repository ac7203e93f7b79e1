-- departure and arrival: a group on its way between two databases of a cluster.

-- What was taken from the tables of this database and is not known to be in the other one. A group
-- has one batch at a time, so that each comes after the one before it.
create table trax.departure (
    batch bigint generated always as identity,
    group_name text collate "C" not null,
    target int not null,
    departed_at timestamptz not null default pg_catalog.clock_timestamp(),
    cargo jsonb not null,
    constraint departure_pkey primary key (batch),
    constraint departure_group_name_key unique (group_name)
);
comment on table trax.departure is 'Batches of groups that move to another shard: no longer here, and perhaps not yet there.';
comment on column trax.departure.batch is 'Number of the batch; later ones are higher.';
comment on column trax.departure.group_name is 'The group.';
comment on column trax.departure.target is 'The shard that it goes to.';
comment on column trax.departure.departed_at is 'When it was taken from the tables here.';
comment on column trax.departure.cargo is 'The rows: jobs, keys, dead_letters, manifests, states, dependencies.';

-- Kept for ever: a batch that is sent again, however late, is known.
create table trax.arrival (
    source int,
    group_name text collate "C",
    batch bigint not null,
    arrived_at timestamptz not null default pg_catalog.clock_timestamp(),
    constraint arrival_pkey primary key (source, group_name)
);
comment on table trax.arrival is 'The last batch of each group that came here from another shard.';
comment on column trax.arrival.source is 'The shard that it came from.';
comment on column trax.arrival.group_name is 'The group.';
comment on column trax.arrival.batch is 'Number of its last batch: that one, and what is lower, is here.';
comment on column trax.arrival.arrived_at is 'When that came.';

select pg_catalog.pg_extension_config_dump('trax.departure', '');
select pg_catalog.pg_extension_config_dump('trax.departure_batch_seq', '');
select pg_catalog.pg_extension_config_dump('trax.arrival', '');
