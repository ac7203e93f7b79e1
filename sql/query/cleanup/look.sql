-- Whether history that found no partition and resolved dead letters are there that have been kept
-- long enough: runs that ended, and letters that were resolved, before a time of their own. How
-- many partitions there are. The default partition is empty but for mishaps; a full one is looked
-- at once a minute.
select
    exists (
        select
        from (
            select o.finished_at
            from trax.run_default o
            limit 100
        ) o
        where o.finished_at < $runs_before
    ) as has_old_runs,
    exists (
        select
        from trax.dead_letter d
        where d.resolved_at < $letters_before
    ) as has_old_letters,
    (
        select count(*)
        from pg_inherits i
        where i.inhparent = 'trax.run'::regclass
    ) as partitions
