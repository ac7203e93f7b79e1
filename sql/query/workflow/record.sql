-- Records a step of a job whose lease $token holds, unless the job has a step of this name, and
-- returns that. Returns no row when the lease is lost. Locks the key of the lease only, so that
-- heartbeats and other steps do not wait. $waited_for is the name of a signal, or a mode.
with held as materialized (
    select l.attempt
    from trax.lease l
    where l.job_id = $job_id
        and l.token = $token
    for key share
), recorded as (
    insert into trax.step (job_id, recorded_at, attempt, step, kind, output, undo, wait)
    select
        $job_id, case when not $is_open then $now end, h.attempt, $step, $kind, $output, $undo,
        case
            when $kind in ('sleep', 'signal', 'jobs') then jsonb_strip_nulls(jsonb_build_object(
                'since', $now, 'until', $until, case $kind when 'signal' then 'name' else 'mode' end, $waited_for
            ))
        end
    from held h
    on conflict on constraint step_pkey do nothing
    returning true
)
select
    exists (select from recorded) as recorded, s.kind, s.recorded_at is not null as is_settled,
    coalesce(s.timed_out, false) as timed_out, s.output, (s.wait ->> 'until')::timestamptz as wait_until
from held h
left join trax.step s on s.job_id = $job_id and s.step = $step
