-- Stores the cycle's decisions about due manifests; all but $now are parallel arrays.
-- $parked_due_at is the occurrence to decide again, $skipped the number of occurrences dropped up
-- to $skipped_for, $made_up the number made up for in a row, $failure the error, $failures the
-- number of failures in a row of its own.
update trax.manifest_state s
set
    next_run_at = d.next_run_at,
    next_scheduled_for = d.next_scheduled_for,
    parked_on = d.parked_on,
    parked_since = case when d.parked_on is not null then $now end,
    parked_due_at = d.parked_due_at,
    last_scheduled_for = coalesce(d.queued_for, s.last_scheduled_for),
    last_queued_at = case when d.queued_for is not null then $now else s.last_queued_at end,
    skipped = s.skipped + d.skipped,
    last_skipped_for = coalesce(d.skipped_for, s.last_skipped_for),
    made_up = d.made_up,
    evaluation_failures = d.failures,
    evaluation_failed_since = case when d.failure is not null then coalesce(s.evaluation_failed_since, $now) end,
    evaluation_error = d.failure,
    decided_at = $now
from unnest(
    $manifest_ids, $next_run_at, $next_scheduled_for, $parked_on, $parked_due_at, $queued_for, $skipped_for, $skipped,
    $made_up, $failure, $failures
) as d (
    manifest_id, next_run_at, next_scheduled_for, parked_on, parked_due_at, queued_for, skipped_for, skipped, made_up,
    failure, failures
)
where s.manifest_id = d.manifest_id
