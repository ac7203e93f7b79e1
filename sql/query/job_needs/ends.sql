-- Returns how needed jobs have ended, and whether a person may still requeue their dead letters.
-- Most have ended after $recent: the partitions of the days before are read only for the others.
select
    j.job_id,
    (
        select e.state
        from (
            select r.state
            from trax.run r
            where r.job_id = j.job_id
                and r.final
                and r.finished_at >= $recent
            union all
            select r.state
            from trax.run r
            where r.job_id = j.job_id
                and r.final
                and r.finished_at < $recent
        ) e
        limit 1
    ) as state,
    exists (
        select
        from trax.dead_letter d
        where d.job_id = j.job_id
            and d.status = 'awaiting_intervention'
        offset 0
    ) as may_be_requeued
from unnest($job_ids) j (job_id)
