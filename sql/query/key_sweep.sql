-- The net under the outcomes: the first job of each concurrency key that nothing holds goes into its lane. $1 at most
update trax.work_queue q
set waits_for = null
where q.ctid = any (array(
    select f.ctid
    from (
        select distinct on (b.concurrency_key) b.job_id, b.concurrency_key
        from trax.work_queue b
        where b.waits_for = 'key'
        order by b.concurrency_key, b.priority desc, b.job_id
    ) k
    join trax.work_queue f on f.job_id = k.job_id
    where not exists (
        select
        from trax.lease l
        where l.concurrency_key = k.concurrency_key
    )
    limit $1
    for update of f skip locked
))
