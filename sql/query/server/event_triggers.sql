-- Returns the functions of event triggers that run, with the rights of the extension's owner, when
-- it creates and drops partitions, enables triggers and grants rights; as in foreign_code.sql.
select
    null::text as relation,
    pg_describe_object('pg_event_trigger'::regclass, e.oid, 0) as object,
    format('%I.%I', n.nspname, p.proname) as function,
    r.rolname::text as owner,
    r.rolsuper as is_trusted,
    p.oid as function_oid
from pg_event_trigger e
join pg_proc p on p.oid = e.evtfoid
join pg_namespace n on n.oid = p.pronamespace
join pg_roles r on r.oid = p.proowner
where e.evtenabled <> 'D'
    and e.evtevent in ('ddl_command_start', 'ddl_command_end', 'sql_drop', 'table_rewrite')
    and (
        e.evttags is null
        or e.evttags && array['CREATE TABLE', 'ALTER TABLE', 'DROP TABLE', 'ALTER EXTENSION', 'GRANT', 'REVOKE']
    )
order by is_trusted, object
