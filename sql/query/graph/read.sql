-- Returns the jobs of the graph of a job, as they are now. The job that runs after a batch has the
-- condition "ended"; those of the batch have none.
with whole as materialized (
    select i.graph_id
    from (
        select g.graph_id, 1 as place
        from trax.graph g
        where g.graph_id = $job_id
        union all
        select m.graph_id, case when m.name is null then 3 else 2 end
        from trax.graph_job m
        where m.job_id = $job_id
    ) i
    order by i.place, i.graph_id
    limit 1
), one as (
    select m.job_id, m.name, m.needs, m.condition
    from whole w
    join trax.graph_job m on m.graph_id = w.graph_id
    where m.replaced_by is null
    union all
    select g.graph_id, null, null, 'ended'
    from whole w
    join trax.graph g on g.graph_id = w.graph_id
    where g.is_batch
)
select
    o.name, o.job_id, s.task, s.state, o.needs, o.condition, s.waits_for, s.attempt, s.started_at, s.finished_at, s.error
from one o
left join lateral (
    select q.task, 'queued' as state, q.waits_for, q.attempts as attempt, null::timestamptz as started_at, null::timestamptz as finished_at, null as error
    from trax.work_queue q
    where q.job_id = o.job_id
    union all
    select l.task, 'in_progress', null, l.attempt, l.started_at, null, null
    from trax.lease l
    where l.job_id = o.job_id
    union all
    select r.task, r.state, null, r.attempt, r.started_at, r.finished_at, r.error
    from trax.run r
    where r.job_id = o.job_id
        and r.final
    limit 1
) s on true
order by o.job_id
