-- Whether a group has these settings already; null keeps. $1 name, $2 limit (0 is none), $3
-- priority, $4 enabled, $5 jobs per key
select
from trax.manifest_group g
where g.name = $1
    and g.max_active_jobs is not distinct from case when $2 is null then g.max_active_jobs else nullif($2, 0) end
    and g.priority = coalesce($3, g.priority)
    and g.enabled = coalesce($4, g.enabled)
    and g.max_per_key = coalesce($5, g.max_per_key)
