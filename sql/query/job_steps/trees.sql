-- Returns jobs and their descendants in the order of their ids: those that live, and of the others
-- those that have steps, as they may have spawned others. A job of another that has the unique key
-- of a child is awaited like one, and is none.
with recursive tree as (
    select j.job_id
    from unnest($job_ids) j (job_id)
    union
    select c.job_id
    from tree t
    cross join lateral (
        select (s.output #>> '{}')::bigint as job_id
        from trax.step s
        where s.job_id = t.job_id
            and s.kind = 'child'
        union all
        select (e.step ->> 'output')::bigint
        from (
            select
            where not exists (select from trax.work_queue q where q.job_id = t.job_id offset 0)
                and not exists (select from trax.lease l where l.job_id = t.job_id offset 0)
            offset 0
        ) ended
        cross join lateral (
            select r.steps
            from trax.run r
            where r.job_id = t.job_id
                and r.final
            limit 1
        ) r
        cross join lateral jsonb_array_elements(r.steps) e (step)
        where e.step ->> 'kind' = 'child'
    ) c
    where exists (
            select
            from trax.work_queue q
            where q.job_id = c.job_id
                and q.parent_job_id = t.job_id
            offset 0
        )
        or exists (
            select
            from trax.lease l
            where l.job_id = c.job_id
                and l.parent_job_id = t.job_id
            offset 0
        )
        or exists (
            select
            from trax.run r
            where r.job_id = c.job_id
                and r.parent_job_id = t.job_id
                and r.final
                and r.steps is not null
            offset 0
        )
)
select t.job_id
from tree t
order by t.job_id
