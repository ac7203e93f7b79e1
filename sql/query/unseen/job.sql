-- Returns whether a job waits, is executed or has ended.
select
    exists (select from trax.work_queue q where q.job_id = $job_id)
    or exists (select from trax.lease l where l.job_id = $job_id)
    or exists (select from trax.run r where r.job_id = $job_id)
