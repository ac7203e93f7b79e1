-- The shards of a cluster, and the places of groups in it. A router stores nothing else: no jobs.

do $$
begin
    if to_regproc('trax.claim_next') is not null then
        raise exception 'this database has the extension trax'
            using errcode = '55000',
                detail = 'The router has functions of the same names in the schema trax.',
                hint = 'Make a database for the router: create database router; then, in it: create extension trax_router cascade';
    end if;
end;
$$;

create schema trax_router;
comment on schema trax_router is 'The router of a cluster of trax databases: its shards, and the calls to them.';

create table trax_router.shard (
    number int,
    address text not null,
    closed text,
    added_at timestamptz not null default clock_timestamp(),
    constraint shard_pkey primary key (number),
    constraint shard_number_range check (number between 0 and 1023)
);
comment on table trax_router.shard is 'The databases of the cluster.';
comment on column trax_router.shard.number is 'The number that trax.set_shard() gave it, which the ids of its jobs carry.';
comment on column trax_router.shard.address is 'Where it is, as words of libpq: host=... port=... dbname=...; without a user each role goes as itself.';
comment on column trax_router.shard.closed is 'Why calls for it are refused at once; null is open.';
comment on column trax_router.shard.added_at is 'When the router got to know it.';

create table trax_router.place (
    place int,
    shard int not null,
    constraint place_pkey primary key (place),
    constraint place_range check (place between 0 and 1023),
    constraint place_shard_fkey foreign key (shard) references trax_router.shard (number)
);
comment on table trax_router.place is 'The 1,024 places over which groups and keys are hashed, and the shard that each is on.';
comment on column trax_router.place.place is '0 to 1023.';
comment on column trax_router.place.shard is 'The shard it is on.';

create table trax_router.group_placement (
    group_name text collate "C",
    shard int,
    placed_at timestamptz not null default clock_timestamp(),
    moves_from int[],
    constraint group_placement_pkey primary key (group_name),
    constraint group_placement_shard_fkey foreign key (shard) references trax_router.shard (number)
);
comment on table trax_router.group_placement is 'Groups that are not where the hash of their name says.';
comment on column trax_router.group_placement.group_name is 'The group.';
comment on column trax_router.group_placement.shard is 'The shard it is on; null is spread: each job is where its key is.';
comment on column trax_router.group_placement.placed_at is 'Since when.';
comment on column trax_router.group_placement.moves_from is 'The shards that may still have some of it, while it moves.';

create table trax_router.key_placement (
    kind text collate "C",
    name text collate "C",
    shard int not null,
    constraint key_placement_pkey primary key (kind, name),
    constraint key_placement_shard_fkey foreign key (shard) references trax_router.shard (number),
    constraint key_placement_kind_known check (kind in ('token', 'job'))
);
comment on table trax_router.key_placement is 'Keys that were alive when their places moved, and stay until places are divided again.';
comment on column trax_router.key_placement.kind is 'token: the name of tokens; job: the concurrency key or unique key of jobs of spread groups.';
comment on column trax_router.key_placement.name is 'The name or key.';
comment on column trax_router.key_placement.shard is 'The shard it is on.';

create table trax_router.move (
    source int,
    target int,
    constraint move_pkey primary key (source, target),
    constraint move_source_fkey foreign key (source) references trax_router.shard (number),
    constraint move_target_fkey foreign key (target) references trax_router.shard (number)
);
comment on table trax_router.move is 'Between which shards groups have ever moved: a job may be elsewhere than its id says. Locked while a batch is on its way.';
comment on column trax_router.move.source is 'The shard that a group left.';
comment on column trax_router.move.target is 'The shard that it went to.';

create table trax_router.manifest (
    name text collate "C",
    shard int not null,
    constraint manifest_pkey primary key (name),
    constraint manifest_shard_fkey foreign key (shard) references trax_router.shard (number)
);
comment on table trax_router.manifest is 'Where manifests were seen last. What is missing or wrong here is asked for and written down.';
comment on column trax_router.manifest.name is 'The manifest.';
comment on column trax_router.manifest.shard is 'The shard it was on.';

select pg_extension_config_dump('trax_router.shard', '');
select pg_extension_config_dump('trax_router.place', '');
select pg_extension_config_dump('trax_router.group_placement', '');
select pg_extension_config_dump('trax_router.key_placement', '');
select pg_extension_config_dump('trax_router.move', '');
select pg_extension_config_dump('trax_router.manifest', '');
