-- Returns the settings from alter database and alter role for a process of this database without a
-- role, as one text for comparison. Such a process belongs to the bootstrap superuser, whose oid is
-- always 10.
select
    pg_catalog.string_agg(
        pg_catalog.format('%s %s %s', s.setdatabase, s.setrole, s.setconfig), ' '
        order by s.setdatabase, s.setrole
    )
from pg_catalog.pg_db_role_setting s
left join pg_catalog.pg_database d on d.oid = s.setdatabase
where s.setrole in (0, 10)
    and (s.setdatabase = 0 or d.datname = pg_catalog.current_database())
