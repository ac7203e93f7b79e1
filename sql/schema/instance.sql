-- instance: which server and database these tables belong to.
--
-- Installing writes the row of this server and database, and the mark of adoption. A copy (a
-- restored dump, a clone made from a template) brings the row of its origin and no mark, or another
-- place's; trax then runs nothing until trax.adopt() is called. A restore is recognized by the
-- settings that every dump sets first (trax.is_loading_dump): it writes neither row nor mark, so
-- that nothing runs while its tables are still being filled, and its rows in an adopted database
-- remove the mark. The row of a dump collides with no other: two rows are a copy too. The
-- extension's triggers are set to always: a trigger that pg_restore --disable-triggers disabled, to
-- load unnoticed, is enabled again only in the default mode.

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

comment on table trax.instance is
    'Which server and database these tables belong to, and whether their scheduler is paused; one row, more or none only in a copy that has not been adopted yet.';
comment on column trax.instance.system_identifier is 'System identifier of the server that owns the jobs (pg_control_system).';
comment on column trax.instance.database_oid is 'Oid of the database that owns the jobs.';
comment on column trax.instance.adopted_at is 'When the jobs were adopted here.';
comment on column trax.instance.paused_at is 'Since when the scheduler is paused by trax.pause(); null while it runs.';
comment on column trax.instance.zone_data is 'The zone data of the server with which next runs were computed.';
comment on column trax.instance.pause_reason is 'The reason for pausing the scheduler.';

select pg_catalog.pg_extension_config_dump('trax.instance', '');
