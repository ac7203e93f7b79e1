-- Returns a step of a job.
select
    false as recorded, s.kind, s.recorded_at is not null as is_settled, s.timed_out, s.output,
    (s.wait ->> 'until')::timestamptz as wait_until
from trax.step s
where s.job_id = $job_id
    and s.step = $step
