-- A database of a cluster, beside the extension trax: groups on their way to another shard.

do $$
declare
    owner constant name := (
        select pg_get_userbyid(c.relowner) from pg_class c where c.oid = 'trax.work_queue'::regclass
    );
    version constant text := (select e.extversion from pg_extension e where e.extname = 'trax');
    version_here constant text := (select e.extversion from pg_extension e where e.extname = 'trax_shard');
begin
    if owner <> current_user then
        raise exception 'the extension trax_shard must belong to the owner of trax'
            using errcode = '42501',
                detail = format('trax belongs to role "%s", and this session acts as role "%s".', owner, current_user),
                hint = format('Type: set role %I; create extension trax_shard', owner);
    end if;
    if version <> version_here then
        raise exception 'this database has trax %, and trax_shard is of version %', version, version_here
            using errcode = '55000',
                detail = 'Both must be of one version.',
                hint = 'Type: alter extension trax update; create extension trax_shard';
    end if;
end;
$$;

-- Batches taken from this database that are not known to have arrived in the other one. A group has
-- one batch at a time, so that they arrive in order.
create table trax.departure (
    batch uuid default pg_catalog.gen_random_uuid(),
    group_name text collate "C" not null,
    target int not null,
    departed_at timestamptz not null default pg_catalog.clock_timestamp(),
    cargo jsonb not null,
    constraint departure_pkey primary key (batch),
    constraint departure_group_name_key unique (group_name)
);
comment on table trax.departure is 'Batches of groups that move to another shard: no longer here, and perhaps not yet there.';
comment on column trax.departure.batch is 'Identity of the batch. Random: a database that is restored from a backup counts from an earlier number.';
comment on column trax.departure.group_name is 'The group.';
comment on column trax.departure.target is 'The shard that it goes to.';
comment on column trax.departure.departed_at is 'When it was taken from the tables here.';
comment on column trax.departure.cargo is 'The rows: jobs, keys, dead_letters, manifests, states, dependencies.';

-- A batch that is sent again, however late, is recognized while its row is here. A group's last row
-- stays; earlier ones are deleted after a week.
create table trax.arrival (
    source int,
    group_name text collate "C",
    batch uuid,
    arrived_at timestamptz not null default pg_catalog.clock_timestamp(),
    constraint arrival_pkey primary key (source, group_name, batch)
);
comment on table trax.arrival is 'The batches of groups that came here from another shard.';
comment on column trax.arrival.source is 'The shard that it came from.';
comment on column trax.arrival.group_name is 'The group.';
comment on column trax.arrival.batch is 'Identity of the batch, as in trax.departure there.';
comment on column trax.arrival.arrived_at is 'When it came.';

-- A call of a mover that is gone may come late: it must not move a group that has come back since.
create table trax.group_home (
    group_name text collate "C",
    placed_at bigint not null,
    has_left boolean not null default false,
    constraint group_home_pkey primary key (group_name)
);
comment on table trax.group_home is 'Groups that a router has placed here, or that have left.';
comment on column trax.group_home.group_name is 'The group.';
comment on column trax.group_home.placed_at is 'When it was placed here last, by the clock of the router: microseconds since 1970.';
comment on column trax.group_home.has_left is 'All of it has left since, with its settings.';

select pg_catalog.pg_extension_config_dump('trax.departure', '');
select pg_catalog.pg_extension_config_dump('trax.arrival', '');
select pg_catalog.pg_extension_config_dump('trax.group_home', '');

-- Each session checks the code on the tables of trax once, and again after one of them has changed:
-- its trigger marks this one as changed, and the tables above are among them from then on.
update trax.adoption a
set home = a.home
where false;
