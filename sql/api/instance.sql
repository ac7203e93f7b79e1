create function trax.is_loading_dump()
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    -- Without the settings of a database or a role.
    select exists (
        select
        from pg_settings s
        where s.source = 'session'
            and (s.name = 'xmloption' or (s.name = 'row_security' and s.setting = 'off'))
    )
$$;
comment on function trax.is_loading_dump() is
    'Internal. Returns whether this session loads a dump: pg_dump and pg_restore set these first, pg_dump unless --enable-row-security is set, pg_restore always.';
