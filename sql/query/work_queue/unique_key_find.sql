-- The job that keeps a unique key alive. $1 key
select k.job_id
from trax.unique_key k
where k.key = $1
