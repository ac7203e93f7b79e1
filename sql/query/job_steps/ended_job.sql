-- Returns what the undo jobs of a job that ends share with it.
select r.group_name, r.priority, r.version
from trax.run r
where r.job_id = $job_id
    and r.final
limit 1
