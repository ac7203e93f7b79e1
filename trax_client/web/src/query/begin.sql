-- Sets the limits, the names and the role of a transaction, for its duration. The search path
-- excludes schemas in which other roles may create objects. $1 statement timeout, $2 the actor as
-- trax.audit shows it, $3 the role; null for the role of the connection.
select
    pg_catalog.set_config('statement_timeout', $1, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true),
    pg_catalog.set_config('application_name', 'trax web', true),
    pg_catalog.set_config('jit', 'off', true),
    -- Texts with times, such as those of trax.diagnose(), are in the zone of the pages.
    pg_catalog.set_config('timezone', 'UTC', true),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    case when $2 is not null then pg_catalog.set_config('trax.program', $2, true) end,
    case when $3 is not null then pg_catalog.set_config('role', $3, true) end
