-- Returns a row if a group has these settings and source; a null matches any, 0 is no limit,
-- and an empty rate is none.
select
from trax.manifest_group g
where g.name = $name
    and g.max_active_jobs is not distinct from
        case when $max_active_jobs is null then g.max_active_jobs else nullif($max_active_jobs, 0) end
    and g.priority = coalesce($priority, g.priority)
    and g.enabled = coalesce($enabled, g.enabled)
    and g.max_per_key = coalesce($max_per_key, g.max_per_key)
    and g.rate is not distinct from case when $rate::text is null then g.rate else nullif($rate, '') end
    and g.max_waiting is not distinct from
        case when $max_waiting is null then g.max_waiting else nullif($max_waiting, 0) end
    and g.overflow = coalesce($overflow, g.overflow)
    and ($source::text is null or g.source = $source)
