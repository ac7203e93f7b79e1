-- Takes the relay's place for a target, unless the session that holds it is alive: that session
-- holds its own lock, which the row names. Locks of other sessions have no effect. $1 target, $2
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
