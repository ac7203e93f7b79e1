-- Lets the jobs that wait for a dead letter wait for the job that was queued in its place.
update trax.need n
set needed_job_id = $job_id
where n.needed_job_id = $replaced_job_id
    and n.awaits_requeue
