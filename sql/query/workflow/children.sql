-- Returns the children of a job, and whether each still waits or is executed.
select
    c.job_id,
    exists (select from trax.lease l where l.job_id = c.job_id)
        or exists (select from trax.work_queue q where q.job_id = c.job_id) as is_alive
from (
    select (s.output #>> '{}')::bigint as job_id
    from trax.step s
    where s.job_id = $job_id
        and s.kind = 'child'
) c
