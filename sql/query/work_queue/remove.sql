-- Takes back a job that was queued by this transaction. $1 job
delete from trax.work_queue q
where q.job_id = $1
