-- Takes the place of the relay for a target, unless the session that has it lives: that holds the
-- lock of its own that the row names. What locks others hold decides nothing. $1 the target, $2 the
-- lock of this session.
with taken as (
    update trax_outbox.target t
    set holder_pid = pg_catalog.pg_backend_pid(), holder_key = $2
    where t.target operator(pg_catalog.=) $1::uuid
        and not exists (
            select
            from pg_catalog.pg_locks l
            join pg_catalog.pg_database d on d.oid operator(pg_catalog.=) l.database
            where d.datname operator(pg_catalog.=) pg_catalog.current_database()
                and l.locktype operator(pg_catalog.=) 'advisory'
                and l.pid operator(pg_catalog.=) t.holder_pid
                and l.objsubid operator(pg_catalog.=) 1
                and (l.classid::bigint operator(pg_catalog.<<) 32) operator(pg_catalog.|) l.objid::bigint
                    operator(pg_catalog.=) t.holder_key
                and l.granted
        )
    returning t.target
)
select exists (select from taken)
