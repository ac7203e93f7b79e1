-- Records that a worker claims, with the known data about it unless it reports its own. The caller
-- holds the worker's advisory lock.
insert into trax.worker as w (name, started_at, last_seen_at, info)
values ($name, $now, $now, $info)
on conflict (name) do update set
    last_seen_at = $now,
    info = case when w.period is null then $info else w.info end
