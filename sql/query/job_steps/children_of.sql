-- Returns the ids of the children of jobs.
select (s.output #>> '{}')::bigint
from trax.step s
where s.job_id = any ($job_ids)
    and s.kind = 'child'
