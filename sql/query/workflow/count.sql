-- Returns how many steps a job has.
select count(*) from trax.step s where s.job_id = $job_id
