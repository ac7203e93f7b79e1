-- Returns whether there are runs without a partition and resolved dead letters that ended or were
-- resolved before their limits; whether there are unique keys that are over; and how many
-- partitions there are. The default partition is normally empty; a full one is checked once a
-- minute.
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
    exists (
        select
        from trax.unique_key k
        where k.ended
            and k.alive_until <= $now
    ) as has_keys,
    (
        select count(*)
        from pg_inherits i
        where i.inhparent = 'trax.run'::regclass
    ) as partitions
