-- Returns the states of jobs in one snapshot: most awaited jobs are executed, and cost one probe
-- each.
select w.job_id, s.state, s.task, s.group_name
from unnest($job_ids) w (job_id)
left join lateral (
    select 'in_progress' as state, l.task, l.group_name
    from trax.lease l
    where l.job_id = w.job_id
    union all
    select 'queued', q.task, q.group_name
    from trax.work_queue q
    where q.job_id = w.job_id
    union all
    select r.state, r.task, r.group_name
    from trax.run r
    where r.job_id = w.job_id
        and r.final
    limit 1
) s on true
