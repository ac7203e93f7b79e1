-- instance: which server and database these tables belong to.
--
-- Installing writes the row of this server and database, and the mark of adoption beside it. A copy (a restored dump,
-- a clone made from a template) brings the row of the place it came from and no mark, or another place's; trax then
-- refuses to run anything until somebody says trax.adopt().
-- A restore is told apart by what pg_dump sets before it creates the extension (row_security off): it gets neither
-- of its own, so that nothing runs while its tables are still being filled. A restore over the same database brings a
-- row that fits: only the mark, which no dump carries, tells it from the original.

-- Nothing in this script is looked up anywhere else.
set local search_path to pg_catalog, pg_temp;

do $$
begin
    if pg_catalog.getdatabaseencoding() operator(pg_catalog.<>) 'UTF8' then
        raise exception 'trax needs a database with the encoding UTF8'
            using errcode = '0A000',
                detail = pg_catalog.format('The encoding of this database is %s.', pg_catalog.getdatabaseencoding()),
                hint = 'Make one: create database jobs encoding ''UTF8'' template template0';
    end if;
end;
$$;

-- Who owns the schema can put functions beside ours that calls with defaults would find first.
do $$
begin
    if exists (
        select
        from pg_catalog.pg_namespace n
        join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) n.nspowner
        where n.nspname operator(pg_catalog.=) 'trax'
            and not r.rolsuper
    ) then
        raise exception 'schema "trax" belongs to a role that is not a superuser'
            using errcode = '42501',
                detail = 'Its owner could change what trax does.',
                hint = 'Drop or rename that schema; create extension makes its own.';
    end if;
end;
$$;

create table trax.instance (
    system_identifier bigint not null,
    database_oid oid not null,
    adopted_at timestamptz not null default pg_catalog.clock_timestamp(),
    paused_at timestamptz,
    pause_reason text,
    zone_data text,
    constraint instance_pkey primary key (system_identifier, database_oid)
);

insert into trax.instance (system_identifier, database_oid)
select c.system_identifier, d.oid
from pg_catalog.pg_control_system() c
cross join pg_catalog.pg_database d
where d.datname operator(pg_catalog.=) pg_catalog.current_database()
    and pg_catalog.current_setting('row_security') operator(pg_catalog.=) 'on';

-- Not registered with pg_extension_config_dump: what a dump carried would not be a mark.
create table trax.adoption (
    one_row boolean not null default true,
    system_identifier bigint not null,
    database_oid oid not null,
    home text,
    constraint adoption_pkey primary key (one_row),
    constraint adoption_one_row check (one_row)
);

insert into trax.adoption (system_identifier, database_oid, home)
select i.system_identifier, i.database_oid, nullif(pg_catalog.current_setting('trax.home', true), '')
from trax.instance i;

comment on table trax.adoption is
    'The mark that install and trax.adopt() leave and no dump carries: without it, and with that of another place, these tables are a copy.';
comment on column trax.adoption.one_row is 'There is one row at most.';
comment on column trax.adoption.system_identifier is 'System identifier of the server that the jobs were adopted on.';
comment on column trax.adoption.database_oid is 'Oid of the database that the jobs were adopted in.';
comment on column trax.adoption.home is 'What trax.home was then; null: no server can be told from its physical copies.';

comment on table trax.instance is
    'Which server and database these tables belong to, and whether their scheduler is paused; one row, more or none only in a copy that nobody has adopted yet.';
comment on column trax.instance.system_identifier is 'System identifier of the server that owns the jobs (pg_control_system).';
comment on column trax.instance.database_oid is 'Oid of the database that owns the jobs.';
comment on column trax.instance.adopted_at is 'When this server and database took the jobs as its own.';
comment on column trax.instance.paused_at is 'Since when the scheduler is paused by trax.pause(); null while it runs.';
comment on column trax.instance.zone_data is 'With which zone data of the server next runs were computed.';
comment on column trax.instance.pause_reason is 'What the person who paused the scheduler said.';

select pg_catalog.pg_extension_config_dump('trax.instance', '');
