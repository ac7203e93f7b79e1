-- The live numbers. Counting of each stops at $1, so that a queue of millions is never read. $1
-- count limit.
select
    (
        select count(*)
        from (select from trax.work_queue q where q.waits_for is null limit $1) q
    ) as ready,
    (
        select count(*)
        from (select from trax.work_queue q where q.waits_for = 'time' limit $1) q
    ) as later,
    (
        select count(*)
        from (
            -- Two conditions, as each has an index; combined they would read all waiting jobs.
            select from trax.work_queue k where k.waits_for = 'key'
            union all
            select from trax.work_queue m where m.waits_for = 'manifest'
            limit $1
        ) q
    ) as blocked,
    (
        select count(*)
        from (select from trax.work_queue q where q.waits_for in ('signal', 'jobs') limit $1) q
    ) as suspended,
    (
        select count(*)
        from (select from trax.lease l limit $1) l
    ) as running,
    (
        select count(*)
        from (
            select from trax.dead_letter d where d.status = 'awaiting_intervention' limit $1
        ) d
    ) as dead,
    (
        select count(*)
        from (
            select
            from trax.run r
            where r.final
                and r.state = 'failed'
                and r.finished_at > pg_catalog.statement_timestamp() - interval '1 hour'
            limit $1
        ) r
    ) as failed,
    (
        select count(*)
        from trax.worker_state s
        where s.state <> 'gone'
    ) as workers
