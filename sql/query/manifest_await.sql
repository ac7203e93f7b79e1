-- Keeps a manifest parked whose dead letter was requeued until that job has its outcome. $1 manifest, $2 now
update trax.manifest_state s
set
    parked_on = case when m.every is not null or m.run_at is not null then 'outcome' else 'queued' end,
    parked_since = $2,
    next_run_at = null,
    next_scheduled_for = null
from trax.manifest m
where s.manifest_id = $1
    and m.manifest_id = s.manifest_id
    and (
        s.parked_on = 'dead_letter'
        -- Due since the failure, and not yet looked at by a cycle.
        or m.every is not null and m.overlap <> 'allow' and s.parked_on is null
    )
