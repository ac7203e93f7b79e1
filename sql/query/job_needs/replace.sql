-- Lets the jobs that wait for a dead letter wait for the job that was queued in its place, and so
-- the jobs of batches of the first one that wait. Their rows are locked if they are free: no cycle
-- wakes one of them before the new need can be seen.
with moved as (
    update trax.need n
    set needed_job_id = $job_id
    where n.needed_job_id = $replaced_job_id
        and n.awaits_requeue
)
insert into trax.need (needed_job_id, job_id, one_is_enough)
select $job_id, w.job_id, false
from trax.graph_job m
join trax.graph g on g.graph_id = m.graph_id and g.is_batch
join trax.work_queue w on w.job_id = g.graph_id and w.waits_for = 'jobs'
left join lateral (
    select
    from trax.work_queue l
    where l.job_id = w.job_id
    for no key update skip locked
) l on true
where m.job_id = $replaced_job_id
on conflict do nothing
