-- The relay reads times and intervals as text, and the source reads what this session writes.
select
    pg_catalog.set_config('datestyle', 'ISO', false),
    pg_catalog.set_config('intervalstyle', 'postgres', false)
