-- Lets the next jobs of a concurrency key into their lanes, up to $2 of each lane. $1 key
update trax.work_queue q
set waits_for = null
where q.ctid = any (array(
    select n.ctid
    from (
        select distinct l.lane_id
        from trax.lane l
    ) l
    cross join lateral (
        select b.ctid
        from trax.work_queue b
        where b.waits_for = 'key'
            and b.concurrency_key = $1
            and b.lane_id = l.lane_id
        order by b.priority desc, b.job_id
        limit $2
        for update skip locked
    ) n
))
