-- adoption: the mark that these tables belong to the server and database of their row in
-- trax.instance.

-- Not registered with pg_extension_config_dump: a mark must not travel with a dump.
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
from trax.instance i
join pg_catalog.pg_control_system() c on c.system_identifier operator(pg_catalog.=) i.system_identifier
join pg_catalog.pg_database d on d.oid operator(pg_catalog.=) i.database_oid
where d.datname operator(pg_catalog.=) pg_catalog.current_database()
    and (select pg_catalog.count(*) from trax.instance) operator(pg_catalog.=) 1;

comment on table trax.adoption is
    'The mark that installation and trax.adopt() leave and no dump carries: without it, or with that of another place, these tables are a copy.';
comment on column trax.adoption.one_row is 'There is one row at most.';
comment on column trax.adoption.system_identifier is 'System identifier of the server that the jobs were adopted on.';
comment on column trax.adoption.database_oid is 'Oid of the database that the jobs were adopted in.';
comment on column trax.adoption.home is 'The value of trax.home then; null: a server cannot be distinguished from its physical copies.';
