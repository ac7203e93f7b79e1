-- Returns the settings of this session as one text for comparison, and whether it has one from
-- alter database or alter role that is no longer stored.
select
    pg_catalog.string_agg(pg_catalog.format('%s %s', g.name, g.setting), ' ' order by g.name) as settings,
    pg_catalog.bool_or(
        g.source in ('global', 'database', 'user', 'database user')
        and not exists (
            select
            from pg_catalog.pg_db_role_setting s
            cross join lateral pg_catalog.unnest(s.setconfig) c (setting)
            where s.setrole in (0, $role)
                and s.setdatabase in (0, $database)
                and pg_catalog.lower(pg_catalog.split_part(c.setting, '=', 1)) = pg_catalog.lower(g.name)
        )
    ) as has_old
from pg_catalog.pg_settings g
