-- Locks the jobs that wait for others no longer: those with a verdict, and those that need none any
-- more. Returns what happens to each: wake, skip (it was to run after a failure, and there was
-- none) or cancel; busy when another transaction has locked it.
select
    c.job_id,
    case
        when l.job_id is null then 'busy'
        when d.verdict = 'doomed' then 'cancel'
        when d.verdict is null and c.steps is null and exists (
            select
            from trax.graph_job g
            where g.job_id = c.job_id
                and g.condition = 'failed'
            offset 0
        )
            then 'skip'
        else 'wake'
    end as decision
from (
    select v.job_id, v.verdict
    from unnest($job_ids, $verdicts) v (job_id, verdict)
    order by v.job_id
) d
cross join lateral (
    select q.job_id, q.steps
    from trax.work_queue q
    where q.job_id = d.job_id
        and q.waits_for = 'jobs'
        and (
            d.verdict is not null
            or (
                select n.needed_job_id
                from trax.need n
                where n.job_id = q.job_id
                order by n.needed_job_id desc
                limit 1
            ) is null
        )
    offset 0
) c
left join lateral (
    select q.job_id
    from trax.work_queue q
    where q.job_id = c.job_id
        and q.waits_for = 'jobs'
    for update skip locked
) l on true
