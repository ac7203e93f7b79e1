-- Lets the next job of a concurrency key into its lane. $1 key
update trax.work_queue q
set waits_for = null
where q.ctid = any (array(
    select b.ctid
    from trax.work_queue b
    where b.waits_for = 'key'
        and b.concurrency_key = $1
    order by b.priority desc, b.job_id
    limit 1
    for update skip locked
))
