-- The approximate numbers of waiting jobs and of runs, from table statistics.
select
    (
        select greatest(c.reltuples, 0)::bigint
        from pg_catalog.pg_class c
        where c.oid = 'trax.work_queue'::regclass
    ) as waiting,
    (
        select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
        from pg_catalog.pg_inherits i
        join pg_catalog.pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'trax.run'::regclass
    ) as runs
