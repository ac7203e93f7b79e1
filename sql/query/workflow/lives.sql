-- Returns the place of a living job: whether it waits or is executed, and whether it has ended; no
-- row when it is unknown.
select false as has_ended
from trax.lease l
where l.job_id = $job_id
union all
select false
from trax.work_queue q
where q.job_id = $job_id
union all
select true
from trax.run r
where r.job_id = $job_id
    and r.final
limit 1
