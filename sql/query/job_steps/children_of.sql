-- Returns the children of jobs: of living ones that have steps, and of ended ones. Children that
-- have ended are returned if they have steps, as they may have spawned others. A job of another
-- that has the unique key of a child is awaited like one, and is none.
select c.job_id
from (
    select s.job_id as parent_job_id, (s.output #>> '{}')::bigint as job_id
    from trax.step s
    where s.job_id = any ($job_ids)
        and s.kind = 'child'
    union all
    select r.job_id, (e.step ->> 'output')::bigint
    from unnest($ended_job_ids) j (job_id)
    cross join lateral (
        select n.job_id, n.steps
        from trax.run n
        where n.job_id = j.job_id
            and n.final
        limit 1
    ) r
    cross join jsonb_array_elements(r.steps) e (step)
    where e.step ->> 'kind' = 'child'
) c
where exists (
        select
        from trax.work_queue q
        where q.job_id = c.job_id
            and q.parent_job_id = c.parent_job_id
        offset 0
    )
    or exists (
        select
        from trax.lease l
        where l.job_id = c.job_id
            and l.parent_job_id = c.parent_job_id
        offset 0
    )
    or exists (
        select
        from trax.run r
        where r.job_id = c.job_id
            and r.parent_job_id = c.parent_job_id
            and r.final
            and r.steps is not null
        offset 0
    )
