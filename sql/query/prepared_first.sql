-- A transaction of this database that was prepared before the server started, if there is one.
select p.gid
from pg_catalog.pg_prepared_xacts p
where p.database = pg_catalog.current_database()
    and p.prepared < pg_catalog.pg_postmaster_start_time()
order by p.prepared
limit 1
