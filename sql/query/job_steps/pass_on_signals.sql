-- Gives the signals of an ended job to the job that is queued in its place.
update trax.signal s
set job_id = $job_id
where s.job_id = $replaced_job_id
