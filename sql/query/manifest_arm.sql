-- Sets when a manifest is due, or what it is parked on. $1 manifest, $2 next run, $3 parked on, $4 now
insert into trax.manifest_state as s (manifest_id, next_run_at, parked_on, parked_since)
values ($1, $2, $3, case when $3 is not null then $4 end)
on conflict (manifest_id) do update set
    next_run_at = excluded.next_run_at,
    parked_on = excluded.parked_on,
    parked_since = excluded.parked_since,
    parked_due_at = null,
    evaluation_failures = 0,
    evaluation_error = null
