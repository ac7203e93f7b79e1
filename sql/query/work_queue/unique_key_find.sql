-- Returns the job that keeps a unique key alive.
select k.job_id
from trax.unique_key k
where k.key = $key
