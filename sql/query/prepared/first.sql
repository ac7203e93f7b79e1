-- Returns a transaction of this database that was prepared before shared memory was created, if
-- there is one. A crash of any process recreates shared memory and restarts the checkpointer.
select p.gid
from pg_catalog.pg_prepared_xacts p
where p.database = pg_catalog.current_database()
    and p.prepared < coalesce(
        (
            select pg_catalog.max(a.backend_start)
            from pg_catalog.pg_stat_activity a
            where a.backend_type = 'checkpointer'
        ),
        'infinity'
    )
order by p.prepared
limit 1
