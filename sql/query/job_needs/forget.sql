-- Deletes the needs of a job.
delete from trax.need n
where n.job_id = $job_id
