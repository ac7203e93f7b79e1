-- Records how a wait has ended.
update trax.step s
set recorded_at = $now,
    attempt = l.attempt,
    timed_out = $timed_out,
    output = $output
from trax.lease l
where l.job_id = $job_id
    and l.token = $token
    and s.job_id = $job_id
    and s.step = $step
    and s.recorded_at is null
