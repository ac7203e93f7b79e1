-- Records where a job ended that it was queued again. $1 job id, $2 id of the new job.
select trax.record_again(job_id => r.job_id, new_job_id => $2::bigint)
from trax.run r
where r.job_id = $1::bigint
    and r.final
