-- Notes that a worker claims. $1 name, $2 now, $3 what is known of it. The caller holds the
-- worker's advisory lock.
insert into trax.worker as w (name, started_at, last_seen_at, info)
values ($1, $2, $2, $3)
on conflict (name) do update set
    last_seen_at = $2,
    info = $3
