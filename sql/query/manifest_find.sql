-- One manifest. $1 name
-- Lateral with an offset: planned while the tables are empty, a plain join would read all of both.
select
    m.manifest_id, m.task, m.input, m.group_name, m.priority, m.max_retries, m.retry_delay, m.timeout, m.enabled,
    m.cron, m.every, m.run_at, m.timezone, m.starts_at, m.ends_at, m.disabled_reason, s.last_success_at
from trax.manifest m
cross join lateral (
    select t.last_success_at
    from trax.manifest_state t
    where t.manifest_id = m.manifest_id
    offset 0
) s
where m.name = $1
