-- Has waiting jobs tried again later; they do not run out of time before that.
update trax.work_queue q
set waits_for = 'time',
    run_at = $run_at,
    expires_at = case when q.expires_at < $run_at then $run_at + interval '1 s' else q.expires_at end
where q.job_id = any ($job_ids)
