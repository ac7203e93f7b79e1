-- The queue and the leases: whether what is dead is worth a vacuum, of which $dead_rows are, and
-- whether one is under way; the dead rows, and the vacuums that came to their end. A crash makes
-- the server forget what is dead: what is large then is vacuumed once, where the server counts and
-- notes that.
select
    c.relname::text as name,
    pg_catalog.pg_stat_get_dead_tuples(c.oid) >= $dead_rows + pg_catalog.pg_stat_get_live_tuples(c.oid) / 5
        or (
            pg_catalog.current_setting('track_counts')::boolean
            and pg_catalog.pg_stat_get_last_vacuum_time(c.oid) is null
            and pg_catalog.pg_stat_get_last_autovacuum_time(c.oid) is null
            and pg_catalog.pg_relation_size(c.oid) > 67108864
        ) as is_due,
    exists (
        select
        from pg_catalog.pg_stat_progress_vacuum v
        where v.relid = c.oid
    ) as is_under_way,
    pg_catalog.pg_stat_get_dead_tuples(c.oid) as dead_rows,
    pg_catalog.pg_stat_get_vacuum_count(c.oid) as vacuums
from pg_catalog.pg_class c
where c.oid in ('trax.work_queue'::regclass, 'trax.lease'::regclass)
