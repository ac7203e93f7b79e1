-- Returns the ids of the living children of jobs. A job of another that has the unique key of a
-- child is awaited like one, and is none.
select c.job_id
from (
    select s.job_id as parent_job_id, (s.output #>> '{}')::bigint as job_id
    from trax.step s
    where s.job_id = any ($job_ids)
        and s.kind = 'child'
) c
where exists (
        select from trax.work_queue q where q.job_id = c.job_id and q.parent_job_id = c.parent_job_id
    )
    or exists (
        select from trax.lease l where l.job_id = c.job_id and l.parent_job_id = c.parent_job_id
    )
