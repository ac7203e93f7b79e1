-- Creates a rate, or changes one that has other settings.
-- $applied: created by trax.apply(); $source takes it over.
insert into trax.rate as r (name, allowed, period, burst, created_at, changed_at, applied, source)
values ($name, $allowed, $period, $burst, $now, $now, $applied, $source)
on conflict (name) do update
set allowed = excluded.allowed,
    period = excluded.period,
    burst = excluded.burst,
    changed_at = case
        when (r.allowed, r.period, r.burst) is distinct from (excluded.allowed, excluded.period, excluded.burst)
            then excluded.changed_at
        else r.changed_at
    end,
    applied = r.applied or $source is not null,
    source = coalesce($source, r.source)
where (r.allowed, r.period, r.burst, r.source)
    is distinct from (excluded.allowed, excluded.period, excluded.burst, coalesce($source, r.source))
