-- Judges at most $at_most needs for the end of these jobs, and all that the jobs of $waiting have,
-- and deletes those that are met. One need of each job comes before the second of any: a locked job
-- that keeps its needs leaves room for others. Returns each job that has needed a job that has
-- ended: the verdict on it if one need was enough, or cannot be met any more (doomed), with that
-- job; and whether another transaction has locked a need. A needed job without a run was deleted by
-- hand.
with concerned as materialized (
    select n.needed_job_id, n.job_id, n.one_is_enough, n.awaits_requeue, n.condition
    from trax.need n
    where n.needed_job_id = any ($job_ids)
    union
    select n.needed_job_id, n.job_id, n.one_is_enough, n.awaits_requeue, n.condition
    from trax.need n
    where n.job_id = any ($waiting)
), in_turn as materialized (
    select c.needed_job_id, c.job_id, c.one_is_enough, c.awaits_requeue, c.condition
    from concerned c
    order by row_number() over (partition by c.job_id)
), judged as materialized (
    select c.needed_job_id, c.job_id, e.state, v.verdict
    from in_turn c
    cross join lateral (
        select case
            when c.condition <> 'ended' then (
                select r.state
                from trax.run r
                where r.job_id = c.needed_job_id
                    and r.final
                limit 1
            )
        end as state
        where not exists (select from trax.work_queue q where q.job_id = c.needed_job_id offset 0)
            and not exists (select from trax.lease l where l.job_id = c.needed_job_id offset 0)
        offset 0
    ) e
    cross join lateral (
        select case
            when not exists (
                select
                from trax.work_queue q
                where q.job_id = c.job_id
                    and q.waits_for = 'jobs'
                offset 0
            )
                then 'met'
            when c.one_is_enough then 'enough'
            when c.condition = 'ended' or e.state = 'completed' then 'met'
            when c.condition = 'failed' then 'enough'
            when c.awaits_requeue and exists (
                select
                from trax.dead_letter d
                where d.job_id = c.needed_job_id
                    and d.status = 'awaiting_intervention'
                offset 0
            )
                then null
            else 'doomed'
        end as verdict
    ) v
    where v.verdict is not null
    limit $at_most
), locked as materialized (
    select j.needed_job_id, j.job_id, j.verdict, l.place
    from judged j
    left join lateral (
        select n.ctid as place
        from trax.need n
        where n.needed_job_id = j.needed_job_id
            and n.job_id = j.job_id
            and j.verdict = 'met'
        for update skip locked
    ) l on true
), met as (
    delete from trax.need n
    where n.ctid = any (array(select l.place from locked l where l.place is not null))
)
select
    l.job_id,
    count(*) as needs,
    case
        when bool_or(l.verdict = 'enough') then 'enough'
        when bool_or(l.verdict = 'doomed') then 'doomed'
    end as verdict,
    min(l.needed_job_id) filter (where l.verdict = 'doomed') as doomed_by,
    count(*) filter (where l.verdict = 'met') > count(l.place) as is_busy
from locked l
group by l.job_id
