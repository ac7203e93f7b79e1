-- Returns the names of a job that ends, which its undo jobs share.
select r.group_name, r.priority
from trax.run r
where r.job_id = $job_id
    and r.final
limit 1
