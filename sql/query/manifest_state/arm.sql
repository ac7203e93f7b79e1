-- Sets when a manifest is due, or what it is parked on. $1 manifest, $2 group, $3 next run, $4 the
-- occurrence it stands for, $5 parked on, $6 now
insert into trax.manifest_state as s (
    manifest_id, group_name, next_run_at, next_scheduled_for, parked_on, parked_since, decided_at
)
values ($1, $2, $3, $4, $5, case when $5 is not null then $6 end, $6)
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
