-- Returns the steps of a job: those of a living job, or those in the last row of its history.
select s.step, s.kind, s.output, s.attempt, s.recorded_at, s.timed_out, s.wait, s.undo
from (
    select s.step_id as place, s.step, s.kind, s.output, s.attempt, s.recorded_at, s.timed_out, s.wait, s.undo
    from trax.step s
    where s.job_id = $job_id
    union all
    select e.place, e.step ->> 'step', e.step ->> 'kind', e.step -> 'output', (e.step ->> 'attempt')::int,
        (e.step ->> 'recorded_at')::timestamptz, coalesce((e.step ->> 'timed_out')::boolean, false), e.step -> 'wait',
        e.step -> 'undo'
    from (select r.steps from trax.run r where r.job_id = $job_id and r.final limit 1) r
    cross join jsonb_array_elements(r.steps) with ordinality e (step, place)
) s
order by s.place
