-- Returns whether a setting is in effect for this process, which is the bootstrap superuser's, that
-- is stored no more: each has the source that the server gave it when it connected.
select exists (
    select
    from pg_catalog.pg_settings g
    where g.source in ('global', 'database', 'user', 'database user')
        and not exists (
            select
            from pg_catalog.pg_db_role_setting s
            cross join lateral pg_catalog.unnest(s.setconfig) c (setting)
            left join pg_catalog.pg_database d on d.oid = s.setdatabase
            where pg_catalog.lower(pg_catalog.split_part(c.setting, '=', 1)) = pg_catalog.lower(g.name)
                and s.setrole = case when g.source in ('user', 'database user') then 10 else 0 end
                and case
                    when g.source in ('database', 'database user') then d.datname = pg_catalog.current_database()
                    else s.setdatabase = 0
                end
        )
)
