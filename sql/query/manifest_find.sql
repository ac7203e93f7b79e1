-- One manifest. $1 name
select
    m.manifest_id, m.task, m.input, m.group_name, m.priority, m.max_retries, m.retry_delay, m.timeout, m.enabled,
    m.cron, m.every, m.run_at, m.timezone, m.starts_at, m.ends_at, m.disabled_reason, s.last_success_at
from trax.manifest m
join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.name = $1
