-- Sets when a manifest is due, and for which occurrence, or the reason on which it is parked.
insert into trax.manifest_state as s (
    manifest_id, group_name, next_run_at, next_scheduled_for, parked_on, parked_since, decided_at
)
values (
    $manifest_id, $group, $next_run_at, $next_scheduled_for, $parked_on,
    case when $parked_on is not null then $now end, $now
)
on conflict (manifest_id) do update set
    group_name = excluded.group_name,
    next_run_at = excluded.next_run_at,
    next_scheduled_for = excluded.next_scheduled_for,
    parked_on = excluded.parked_on,
    parked_since = excluded.parked_since,
    parked_due_at = null,
    made_up = 0,
    evaluation_failures = 0,
    evaluation_failed_since = null,
    evaluation_error = null,
    decided_at = excluded.decided_at
