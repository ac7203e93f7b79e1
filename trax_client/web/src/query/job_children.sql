-- The jobs that a job has spawned, those that these have spawned, and so on, parents first and in
-- the order of spawning: of each job the first $3, in all the first $4. $1 job id, $2 depth.
with recursive tree as (
    select 0 as depth, $1::bigint as job_id, null::bigint as parent_id, null::text collate "C" as step, '{}'::bigint[] as path, 0::bigint as siblings
    union all
    select t.depth + 1, c.job_id, t.job_id, c.step, t.path || c.place, c.siblings
    from tree t
    cross join lateral (
        select s.step, s.job_id, s.place, count(*) over () as siblings
        from (
            select s.step, (s.output #>> '{}')::bigint as job_id, s.step_id as place
            from trax.step s
            where s.job_id = t.job_id
                and s.kind = 'child'
            union all
            select e.kept ->> 'step', (e.kept ->> 'output')::bigint, e.place
            from (
                -- Steps with large results take long to read.
                select r.steps
                from trax.run r
                where r.job_id = t.job_id
                    and r.final
                    and pg_catalog.pg_column_size(r.steps) <= 4000000
                limit 1
            ) r
            cross join lateral pg_catalog.jsonb_array_elements(r.steps) with ordinality e (kept, place)
            where e.kept ->> 'kind' = 'child'
        ) s
        where s.job_id is not null
        order by s.place
        limit $3
    ) c
    where t.depth < $2
),
-- Rows of a recursion are made as they are asked for.
shown as materialized (
    select t.*
    from tree t
    limit $4 + 1
)
select s.depth, s.job_id, s.parent_id, s.step, s.siblings, f.state, f.waits_for, f.task, f.started_at, f.finished_at
from shown s
left join lateral (
    select 'in_progress' as state, null::text as waits_for, l.task, l.started_at, null::timestamptz as finished_at
    from trax.lease l
    where l.job_id = s.job_id
    union all
    select 'queued', q.waits_for, q.task, null, null
    from trax.work_queue q
    where q.job_id = s.job_id
    union all
    select r.state, null, r.task, r.started_at, r.finished_at
    from trax.run r
    where r.job_id = s.job_id
        and r.final
    limit 1
) f on true
where s.depth > 0
order by s.path
