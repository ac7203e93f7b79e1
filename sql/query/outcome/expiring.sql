-- Returns jobs that by $ended_by waited longer than they may.
select q.job_id
from trax.work_queue q
where q.expires_at is not null
    and q.expires_at <= $ended_by
order by q.expires_at
limit $at_most
