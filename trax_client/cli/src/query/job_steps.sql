-- The steps of a job, in the order of recording. $1 job id.
select
    s.step,
    s.kind,
    s.attempt,
    s.recorded_at,
    s.timed_out,
    s.output,
    s.wait
from trax.read_steps($1) s
