-- Has waiting jobs tried again later, unless another transaction has them, and returns which; they
-- do not run out of time before that.
update trax.work_queue q
set waits_for = 'time',
    run_at = $run_at,
    expires_at = case when q.expires_at < $run_at then $run_at + interval '1 s' else q.expires_at end
where q.job_id = any (array(
    select o.job_id
    from trax.work_queue o
    where o.job_id = any ($job_ids)
    order by o.job_id
    for update skip locked
))
returning q.job_id
