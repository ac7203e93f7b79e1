-- Whether history that found no partition and resolved dead letters are there that have been kept
-- long enough, and how many partitions there are. $1 runs that ended before, $2 dead letters
-- resolved before The default partition is empty but for mishaps; a full one is looked at once a
-- minute.
select
    exists (
        select
        from (
            select o.finished_at
            from trax.run_default o
            limit 100
        ) o
        where o.finished_at < $1
    ),
    exists (
        select
        from trax.dead_letter d
        where d.resolved_at < $2
    ),
    (
        select count(*)
        from pg_inherits i
        where i.inhparent = 'trax.run'::regclass
    )
