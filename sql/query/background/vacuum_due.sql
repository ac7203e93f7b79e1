-- Returns whether the dead rows of the queue, the leases and the events of needs, at least
-- $dead_rows, are worth a vacuum, and whether one is running; the number of dead rows, and of
-- vacuums that have ended. After a crash the server has lost the count of dead rows: a large table
-- is then vacuumed once, if the server counts and records vacuums.
select
    c.relname::text as name,
    pg_catalog.pg_stat_get_dead_tuples(c.oid) >= $dead_rows + pg_catalog.pg_stat_get_live_tuples(c.oid) / 5
        or (
            pg_catalog.current_setting('track_counts')::boolean
            and pg_catalog.pg_stat_get_last_vacuum_time(c.oid) is null
            and pg_catalog.pg_stat_get_last_autovacuum_time(c.oid) is null
            -- Null for a table that has just been dropped.
            and coalesce(pg_catalog.pg_relation_size(c.oid) > 67108864, false)
        ) as is_due,
    exists (
        select
        from pg_catalog.pg_stat_progress_vacuum v
        where v.relid = c.oid
    ) as is_under_way,
    pg_catalog.pg_stat_get_dead_tuples(c.oid) as dead_rows,
    pg_catalog.pg_stat_get_vacuum_count(c.oid) as vacuums
from pg_catalog.pg_class c
where c.oid in ('trax.work_queue'::regclass, 'trax.lease'::regclass, 'trax.need_event'::regclass)
