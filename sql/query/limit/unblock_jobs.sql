-- Lets jobs into their lanes that an earlier statement has found locked. Returns them, and those
-- that are still locked.
with unblocked as (
    update trax.work_queue q
    set waits_for = null
    -- Not by ctid: a row that was changed since the snapshot is locked in its new version, but
    -- found by its old one.
    where q.job_id = any (array(
        select b.job_id
        from trax.work_queue b
        where b.job_id = any ($job_ids)
            and b.waits_for in ('key', 'manifest')
        order by b.job_id
        for update skip locked
    ))
    returning q.job_id
)
select b.lane_id, b.priority, b.job_id, b.job_id in (select u.job_id from unblocked u) as is_unblocked
from trax.work_queue b
where b.job_id = any ($job_ids)
    and b.waits_for in ('key', 'manifest')
