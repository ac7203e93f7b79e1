-- Takes back a job that was queued by this transaction.
delete from trax.work_queue q
where q.job_id = $job_id
