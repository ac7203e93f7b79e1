-- Puts retries that were decided by a clock that was ahead back to one delay from now.
update trax.work_queue q
set run_at = $now + p.delay
from (
    select w.job_id, w.run_at - max(r.finished_at) as delay
    from trax.run r
    join trax.work_queue w on w.job_id = r.job_id
    where r.finished_at > $latest
        and not r.final
        and isfinite(r.finished_at)
        and w.waits_for = 'time'
        and isfinite(w.run_at)
    group by w.job_id, w.run_at
    -- Skips a retry that was put back already.
    having w.run_at >= max(r.finished_at)
) p
where q.job_id = p.job_id
    and q.waits_for = 'time'
