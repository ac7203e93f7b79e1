-- instance: which server and database these tables belong to.
--
-- Installing writes the row of this server and database, and the mark of adoption beside it. A copy
-- (a restored dump, a clone made from a template) brings the row of the place it came from and no
-- mark, or another place's; trax then refuses to run anything until somebody calls trax.adopt(). A
-- restore is recognized by what every dump sets first (trax.is_loading_dump): it gets neither row
-- nor mark, so that nothing runs while its tables are still being filled, and what it writes into
-- an adopted database removes the mark. The row that a dump brings collides with none: two rows are
-- a copy too. And our triggers are always enabled: one that was disabled, as pg_restore
-- --disable-triggers does to load unseen, is enabled less than that when it is enabled again.

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

-- Who owns the schema, or may create in it, can put functions beside ours that calls with defaults
-- would find first.
do $$
declare
    other text;
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
    select coalesce(pg_catalog.quote_ident(r.rolname), 'public')
    into other
    from pg_catalog.pg_namespace n
    cross join pg_catalog.aclexplode(n.nspacl) a
    left join pg_catalog.pg_roles r on r.oid operator(pg_catalog.=) a.grantee
    where n.nspname operator(pg_catalog.=) 'trax'
        and a.privilege_type operator(pg_catalog.=) 'CREATE'
        and r.rolsuper is not true
    order by a.grantee
    limit 1;
    if other is not null then
        raise exception 'others than superusers may create objects in schema "trax"'
            using errcode = '42501',
                detail = pg_catalog.format('Role %s could put functions beside those of trax and so change what trax does.', other),
                hint = pg_catalog.format('Type: revoke create on schema trax from %s; or, when default privileges gave it: alter default privileges revoke create on schemas from %s', other, other);
    end if;
    select pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
    into other
    from pg_catalog.pg_depend d
    join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) d.refobjid
    where d.refclassid operator(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
        and n.nspname operator(pg_catalog.=) 'trax'
        and d.classid operator(pg_catalog.<>) 'pg_catalog.pg_extension'::pg_catalog.regclass
        and d.classid operator(pg_catalog.<>) 'pg_catalog.pg_default_acl'::pg_catalog.regclass
    order by d.classid, d.objid
    limit 1;
    if other is not null then
        raise exception 'schema "trax" is not empty'
            using errcode = '55000',
                detail = pg_catalog.format('There is %s, which calls of trax could find first.', other),
                hint = 'Drop what is in that schema, or rename it; create extension makes its own.';
    end if;
end;
$$;

create function trax.is_loading_dump()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    -- Not what a database or a role has as its own.
    select exists (
        select
        from pg_settings s
        where s.source = 'session'
            and (s.name = 'xmloption' or (s.name = 'row_security' and s.setting = 'off'))
    )
$$;
comment on function trax.is_loading_dump() is
    'Internal. Returns whether this session loads a dump: pg_dump and pg_restore set these first, pg_dump unless --enable-row-security is set, pg_restore always.';

create table trax.instance (
    system_identifier bigint not null,
    database_oid oid not null,
    adopted_at timestamptz not null default pg_catalog.clock_timestamp(),
    paused_at timestamptz,
    pause_reason text,
    zone_data text
);
alter table trax.instance replica identity full;

insert into trax.instance (system_identifier, database_oid)
select c.system_identifier, d.oid
from pg_catalog.pg_control_system() c
cross join pg_catalog.pg_database d
where d.datname operator(pg_catalog.=) pg_catalog.current_database()
    and not trax.is_loading_dump();

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
    'The mark that installation and trax.adopt() leave and no dump carries: without it, or with that of another place, these tables are a copy.';
comment on column trax.adoption.one_row is 'There is one row at most.';
comment on column trax.adoption.system_identifier is 'System identifier of the server that the jobs were adopted on.';
comment on column trax.adoption.database_oid is 'Oid of the database that the jobs were adopted in.';
comment on column trax.adoption.home is 'The value of trax.home then; null: a server cannot be distinguished from its physical copies.';

comment on table trax.instance is
    'Which server and database these tables belong to, and whether their scheduler is paused; one row, more or none only in a copy that has not been adopted yet.';
comment on column trax.instance.system_identifier is 'System identifier of the server that owns the jobs (pg_control_system).';
comment on column trax.instance.database_oid is 'Oid of the database that owns the jobs.';
comment on column trax.instance.adopted_at is 'When the jobs were adopted here.';
comment on column trax.instance.paused_at is 'Since when the scheduler is paused by trax.pause(); null while it runs.';
comment on column trax.instance.zone_data is 'The zone data of the server with which next runs were computed.';
comment on column trax.instance.pause_reason is 'The reason for pausing the scheduler.';

select pg_catalog.pg_extension_config_dump('trax.instance', '');
