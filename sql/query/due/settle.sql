-- Stores what the cycle decided for due manifests. Side by side: $1 manifests, $2 next run, $3 the
-- occurrence it stands for, $4 parked on, $5 the occurrence to look at again, $6 the occurrence
-- that was queued, $7 the occurrence that was dropped, $8 how many were made up for in a row, $9
-- what went wrong, $10 how often in a row by its own fault. $11 now
update trax.manifest_state s
set
    next_run_at = d.next_run_at,
    next_scheduled_for = d.next_scheduled_for,
    parked_on = d.parked_on,
    parked_since = case when d.parked_on is not null then $11 end,
    parked_due_at = d.parked_due_at,
    last_scheduled_for = coalesce(d.queued_for, s.last_scheduled_for),
    last_queued_at = case when d.queued_for is not null then $11 else s.last_queued_at end,
    skipped = s.skipped + case when d.skipped_for is not null then 1 else 0 end,
    last_skipped_for = coalesce(d.skipped_for, s.last_skipped_for),
    made_up = d.made_up,
    evaluation_failures = d.failures,
    evaluation_failed_since = case when d.failure is not null then coalesce(s.evaluation_failed_since, $11) end,
    evaluation_error = d.failure,
    decided_at = $11
from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) as d (
    manifest_id, next_run_at, next_scheduled_for, parked_on, parked_due_at, queued_for, skipped_for, made_up, failure,
    failures
)
where s.manifest_id = d.manifest_id
