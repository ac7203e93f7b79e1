-- Creates a rate, or changes one that has other settings.
insert into trax.rate as r (name, allowed, period, burst, created_at, changed_at)
values ($name, $allowed, $period, $burst, $now, $now)
on conflict (name) do update
set allowed = excluded.allowed, period = excluded.period, burst = excluded.burst, changed_at = excluded.changed_at
where (r.allowed, r.period, r.burst) is distinct from (excluded.allowed, excluded.period, excluded.burst)
