-- Stores how many steps a waiting job has recorded.
update trax.work_queue q
set steps = nullif($steps, 0)
where q.job_id = $job_id
