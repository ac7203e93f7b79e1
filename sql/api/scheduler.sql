-- The background scheduler of this database.

create function trax.start_scheduler()
returns text
language c
security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_start_scheduler';

comment on function trax.start_scheduler() is
    'Starts the scheduler of this database. Returns ''started'' or ''already running''.';

create function trax.installed()
returns void
language c
security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_installed';

comment on function trax.installed() is
    'Internal. Makes the launcher look at this database again when this transaction commits.';

