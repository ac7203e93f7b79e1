-- What became of a job until now.
select j.state, j.output, j.error
from trax.job j
where j.job_id = $job_id
