-- Creates or changes a group; null keeps. $1 name, $2 limit (0 is none), $3 priority, $4 enabled,
-- $5 jobs per key, $6 now, $7 created by trax.apply()
insert into trax.manifest_group as g (name, max_active_jobs, priority, enabled, max_per_key, created_at, updated_at, applied)
values ($1, nullif($2, 0), coalesce($3, 0), coalesce($4, true), coalesce($5, 1), $6, $6, $7)
on conflict (name) do update set
    max_active_jobs = case when $2 is null then g.max_active_jobs else nullif($2, 0) end,
    priority = coalesce($3, g.priority),
    enabled = coalesce($4, g.enabled),
    max_per_key = coalesce($5, g.max_per_key),
    updated_at = $6
