-- The net under the outcomes: of each manifest that has room the first job of each lane goes into it. $1 at most
update trax.work_queue q
set waits_for = null
where q.ctid = any (array(
    select f.ctid
    from (
        select distinct on (b.manifest_id, b.lane_id) b.job_id, b.manifest_id
        from trax.work_queue b
        where b.waits_for = 'manifest'
        order by b.manifest_id, b.lane_id, b.priority desc, b.job_id
    ) k
    join trax.work_queue f on f.job_id = k.job_id
    where (
            select count(*)
            from trax.lease l
            where l.manifest_id = k.manifest_id
        ) < coalesce((select m.max_concurrency from trax.manifest m where m.manifest_id = k.manifest_id), 2147483647)
    limit $1
    for update of f skip locked
))
returning q.lane_id, q.priority, q.job_id
