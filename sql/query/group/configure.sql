-- Creates or changes a group; a null keeps the stored value, a limit of 0 removes the limit, and an
-- empty rate the rate.
-- $applied: created by trax.apply(); $source takes it over.
insert into trax.manifest_group as g (
    name, max_active_jobs, priority, enabled, max_per_key, max_waiting, overflow, created_at, updated_at, applied, source, rate
)
values (
    $name, nullif($max_active_jobs, 0), coalesce($priority, 0), coalesce($enabled, true), coalesce($max_per_key, 1),
    nullif($max_waiting, 0), coalesce($overflow, 'reject'),
    $now, $now, $applied, $source, nullif($rate, '')
)
on conflict (name) do update set
    max_active_jobs = case when $max_active_jobs is null then g.max_active_jobs else nullif($max_active_jobs, 0) end,
    priority = coalesce($priority, g.priority),
    enabled = coalesce($enabled, g.enabled),
    max_per_key = coalesce($max_per_key, g.max_per_key),
    rate = case when $rate is null then g.rate else nullif($rate, '') end,
    max_waiting = case when $max_waiting is null then g.max_waiting else nullif($max_waiting, 0) end,
    overflow = coalesce($overflow, g.overflow),
    applied = g.applied or $source is not null,
    source = coalesce($source, g.source),
    updated_at = $now
