-- A prepared transaction of this database, if there is one.
select p.gid
from pg_catalog.pg_prepared_xacts p
where p.database = pg_catalog.current_database()
order by p.prepared
limit 1
