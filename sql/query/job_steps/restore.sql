-- Adds steps that a job before this one has recorded, and that only the end of that job undoes.
insert into trax.step (job_id, recorded_at, attempt, timed_out, step, kind, output, wait)
select
    $job_id, (e.step ->> 'recorded_at')::timestamptz, (e.step ->> 'attempt')::int,
    coalesce((e.step ->> 'timed_out')::boolean, false), e.step ->> 'step', e.step ->> 'kind', e.step -> 'output', e.step -> 'wait'
from jsonb_array_elements($steps) with ordinality e (step, place)
where e.place < coalesce($before, e.place + 1)
order by e.place
returning step
