-- Stores a worker's report about itself. The caller holds the worker's advisory lock.
insert into trax.worker as w (name, started_at, last_seen_at, period, stopping, info)
values ($name, $now, $now, $period, $stopping, coalesce($info, '{}'))
on conflict (name) do update set
    last_seen_at = $now,
    period = $period,
    stopping = $stopping,
    info = coalesce($info, w.info)
