-- Returns what a job needed: the jobs of its batch, or those that its graph names, in that order.
with needed as materialized (
    select m.name, m.job_id, m.job_id as place
    from trax.graph g
    join trax.graph_job m on m.graph_id = g.graph_id
    where g.graph_id = $job_id
        and g.is_batch
        and m.replaced_by is null
    union all
    select o.name, o.job_id, n.place
    from trax.graph_job m
    cross join lateral unnest(m.needs) with ordinality n (name, place)
    join trax.graph_job o on o.graph_id = m.graph_id and o.name = n.name
    where m.job_id = $job_id
        and o.replaced_by is null
)
select n.name, n.job_id, s.state, s.output, s.error
from needed n
left join lateral (
    select 'queued' as state, null::jsonb as output, null::text as error
    from trax.work_queue q
    where q.job_id = n.job_id
    union all
    select 'in_progress', null, null
    from trax.lease l
    where l.job_id = n.job_id
    union all
    select r.state, r.output, r.error
    from trax.run r
    where r.job_id = n.job_id
        and r.final
    limit 1
) s on true
order by n.place
