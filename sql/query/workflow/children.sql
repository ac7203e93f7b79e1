-- Returns the children of a job: whether each still waits or is executed, and then whether it is a
-- job of another, which has the unique key of the child.
select c.job_id, w.job_id is not null as is_alive, w.parent_job_id is distinct from $job_id as is_of_another
from (
    select (s.output #>> '{}')::bigint as job_id
    from trax.step s
    where s.job_id = $job_id
        and s.kind = 'child'
) c
left join lateral (
    select l.job_id, l.parent_job_id
    from trax.lease l
    where l.job_id = c.job_id
    union all
    select q.job_id, q.parent_job_id
    from trax.work_queue q
    where q.job_id = c.job_id
    limit 1
) w on true
