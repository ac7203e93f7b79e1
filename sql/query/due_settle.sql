-- Stores what the cycle decided for due manifests. Side by side: $1 manifests, $2 next run, $3 parked on,
-- $4 the occurrence to look at again, $5 the occurrence that was queued, $6 what went wrong. $7 now
update trax.manifest_state s
set
    next_run_at = d.next_run_at,
    parked_on = d.parked_on,
    parked_since = case when d.parked_on is not null then $7 end,
    parked_due_at = d.parked_due_at,
    last_scheduled_for = coalesce(d.queued_for, s.last_scheduled_for),
    last_queued_at = case when d.queued_for is not null then $7 else s.last_queued_at end,
    evaluation_failures = case when d.failure is null then 0 else s.evaluation_failures + 1 end,
    evaluation_error = d.failure
from unnest($1, $2, $3, $4, $5, $6) as d (manifest_id, next_run_at, parked_on, parked_due_at, queued_for, failure)
where s.manifest_id = d.manifest_id
