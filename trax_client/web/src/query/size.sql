-- The numbers of waiting jobs and of ended attempts: counted up to $1, beyond that estimated from
-- the server's last look at the tables. $1 count limit.
select
    c.waiting, c.runs, greatest(e.waiting, c.waiting) as estimated_waiting, greatest(e.runs, c.runs) as estimated_runs
from (
    select
        (
            select count(*)
            from (select from trax.work_queue q order by q.job_id limit $1) q
        ) as waiting,
        (
            select count(*)
            from (select from trax.run r order by r.job_id limit $1) r
        ) as runs
) c
cross join (
    select
        (
            select c.reltuples::bigint
            from pg_catalog.pg_class c
            where c.oid = 'trax.work_queue'::regclass
        ) as waiting,
        (
            select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
            from pg_catalog.pg_inherits i
            join pg_catalog.pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'trax.run'::regclass
        ) as runs
) e
