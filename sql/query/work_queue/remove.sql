-- Removes a job that this transaction queued.
delete from trax.work_queue q
where q.job_id = $job_id
