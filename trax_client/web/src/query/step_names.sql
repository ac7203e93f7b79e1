-- The names of the steps of a job, in the order of recording. $1 job id, $2 limit.
select s.step
from trax.read_steps(job_id => $1::bigint) s
limit $2
