-- Postpones waiting jobs, unless another transaction has locked them, and returns which; they do
-- not expire before they are tried again.
update trax.work_queue q
set waits_for = 'time',
    wait_until = null,
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
