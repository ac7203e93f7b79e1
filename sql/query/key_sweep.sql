-- The net under the outcomes: of each concurrency key that has room the first job of each lane goes into it. $1 at most
update trax.work_queue q
set waits_for = null
where q.ctid = any (array(
    select f.ctid
    from (
        select distinct on (b.concurrency_key, b.lane_id) b.job_id, b.concurrency_key, b.group_name
        from trax.work_queue b
        where b.waits_for = 'key'
        order by b.concurrency_key, b.lane_id, b.priority desc, b.job_id
    ) k
    join trax.work_queue f on f.job_id = k.job_id
    where (
            select count(*)
            from trax.lease l
            where l.concurrency_key = k.concurrency_key
        ) < coalesce((select g.max_per_key from trax.manifest_group g where g.name = k.group_name), 1)
    limit $1
    for update of f skip locked
))
returning q.lane_id, q.priority, q.job_id
