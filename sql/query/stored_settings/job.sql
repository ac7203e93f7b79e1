-- Returns the settings of a waiting job that trax.change_job() can change, a row for each; not its
-- input, which may be large.
select e.key, e.value::text as value
from trax.work_queue q
cross join lateral jsonb_each(jsonb_build_object(
    'group_name', q.group_name, 'max_retries', q.max_retries, 'priority', q.priority, 'run_at', q.run_at,
    'timeout', q.timeout
)) as e (key, value)
where q.job_id = $job_id
