-- The last steps of a job before a place, in the order of recording: of a living job those of
-- trax.step, of an ended one those of its last run. Only values of these rows are read, and none
-- that is large. $1 job id, $2 before this place, $3 limit, $4 maximum characters of a value.
with session as materialized (
    select r.attempt, r.started_at
    from trax.run r
    where r.job_id = $1
    union all
    select l.attempt, l.started_at
    from trax.lease l
    where l.job_id = $1
),
own as materialized (
    select
        pg_catalog.row_number() over (order by s.step_id) as place,
        s.step, s.kind, s.attempt, s.recorded_at, s.timed_out, s.wait, s.undo, s.output
    from trax.step s
    where s.job_id = $1
),
ended as materialized (
    select r.steps
    from trax.run r
    where r.job_id = $1
        and r.final
    limit 1
),
-- Returns also the step before the shown ones, whose time is the beginning of the first.
size as materialized (
    select s.*, greatest(s.before - $3 - 1, 1) as first
    from (
        select s.total, s.has_undo, least(coalesce($2, s.total + 1), s.total + 1) as before
        from (
            select count(*) as total, pg_catalog.bool_or(o.undo is not null) as has_undo
            from own o
            having count(*) > 0
            union all
            select pg_catalog.jsonb_array_length(e.steps), pg_catalog.jsonb_path_exists(e.steps, '$[*].undo')
            from ended e
            where e.steps is not null
        ) s
    ) s
),
near as (
    select o.*
    from size z
    join own o on o.place between z.first and z.before - 1
    union all
    select
        z.first + e.place - 1, e.kept ->> 'step', e.kept ->> 'kind', (e.kept ->> 'attempt')::int, (e.kept ->> 'recorded_at')::timestamptz,
        coalesce((e.kept ->> 'timed_out')::boolean, false), e.kept -> 'wait', e.kept -> 'undo', e.kept -> 'output'
    from size z
    cross join ended d
    cross join lateral pg_catalog.jsonb_path_query(
        d.steps, '$[$first to $last]', pg_catalog.jsonb_build_object('first', z.first - 1, 'last', z.before - 2)
    ) with ordinality e (kept, place)
    where z.before > z.first
),
shown as materialized (
    select
        n.*, n.output as result, z.total, z.has_undo, z.before,
        pg_catalog.lag(n.recorded_at) over (order by n.place) as previous
    from size z
    cross join near n
)
select
    s.place, s.total, s.has_undo, s.step, s.kind, s.attempt, s.recorded_at, s.timed_out,
    -- A step took no longer than since the one before it, or since its attempt began.
    coalesce(
        (s.wait ->> 'since')::timestamptz,
        greatest(
            s.previous,
            (select max(n.started_at) from session n where n.attempt = s.attempt and n.started_at <= s.recorded_at)
        )
    ) as since,
    (s.wait ->> 'until')::timestamptz as until,
    coalesce(s.wait ->> 'name', s.wait ->> 'mode') as waited_for,
    s.undo ->> 'task' as undo,
    s.result is not null and s.kind <> 'child' as has_result,
    case
        when pg_catalog.length(t.text) <= 100 then t.text
        else pg_catalog.left(pg_catalog.jsonb_pretty(case when t.text is not null then s.result end), $4)
    end as result,
    c.job_id as child,
    c.state as child_state,
    c.finished_at as child_ended
from shown s
left join lateral (
    select s.result::text as text
    where s.kind <> 'child'
        and pg_catalog.pg_column_size(s.result) <= 20000
) t on true
left join lateral (
    select i.job_id, f.state, f.finished_at
    from (select case s.kind when 'child' then (s.result #>> '{}')::bigint end as job_id) i
    left join lateral (
        select 'in_progress' as state, null::timestamptz as finished_at
        from trax.lease l
        where l.job_id = i.job_id
        union all
        select 'queued', null
        from trax.work_queue q
        where q.job_id = i.job_id
        union all
        select r.state, r.finished_at
        from trax.run r
        where r.job_id = i.job_id
            and r.final
        limit 1
    ) f on true
) c on s.kind = 'child'
where s.place >= s.before - $3
order by s.place
