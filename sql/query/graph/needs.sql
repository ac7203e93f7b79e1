-- Returns what a job needed: the jobs of its batch, or those that its graph names, in that order.
-- Only a job that needs a completion waits for the one that takes the place of a dead one; the
-- others were decided by the first.
with needed as materialized (
    select m.name, m.job_id, m.job_id as place
    from trax.graph g
    join trax.graph_job m on m.graph_id = g.graph_id
    where g.graph_id = $job_id
        and g.is_batch
        and m.replaced_by is null
    union all
    select p.name, p.job_id, p.place
    from (
        select
            o.name, o.job_id, n.place, m.condition, o.replaced_by,
            row_number() over (partition by m.graph_id, n.place order by o.job_id) as number
        from trax.graph_job m
        cross join lateral unnest(m.needs) with ordinality n (name, place)
        join trax.graph_job o on o.graph_id = m.graph_id and o.name = n.name
        where m.job_id = $job_id
    ) p
    where case when p.condition = 'completed' then p.replaced_by is null else p.number = 1 end
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
