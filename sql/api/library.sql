-- library: the file of the functions in C, one for all versions of the SQL.

-- A server that has loaded an older file keeps it until it restarts, even if the file is replaced.
do $$
begin
    create function trax.library_version()
    returns text
    language c immutable parallel safe
    set search_path = pg_catalog, pg_temp
    as 'MODULE_PATHNAME', 'trax_library_version';
exception
    when undefined_function then
        raise exception 'this server has loaded an older library of trax'
            using errcode = '55000',
                detail = 'The library is version 0.1.0.',
                hint = 'Restart PostgreSQL, which loads the library that is installed, and type the command again.';
end;
$$;
comment on function trax.library_version() is
    'Internal. Returns the version of the library that this session has loaded.';

do $$
declare
    version text;
begin
    select e.extversion into version from pg_catalog.pg_extension e where e.extname operator(pg_catalog.=) 'trax';
    if trax.library_version() operator(pg_catalog.<>) version then
        raise exception 'this server has loaded another library of trax'
            using errcode = '55000',
                detail = pg_catalog.format('The library is version %s, the SQL version %s.', trax.library_version(), version),
                hint = 'Restart PostgreSQL, which loads the library that is installed, and type the command again.';
    end if;
end;
$$;
