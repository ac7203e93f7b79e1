-- One manifest. $1 name
select
    m.manifest_id, m.task, m.input, m.group_name, m.priority, m.max_retries, m.retry_delay, m.timeout, m.enabled,
    m.cron, m.every, m.run_at, m.timezone, m.starts_at, m.ends_at, m.disabled_reason, s.last_success_at,
    m.depends_mode, m.dormant, m.overlap, m.max_concurrency, m.variance, m.exclusions, s.next_run_at,
    s.next_scheduled_for, m.misfire, m.misfire_threshold, m.misfire_limit,
    array(
        select p.name
        from trax.manifest_dependency d
        join trax.manifest p on p.manifest_id = d.parent_id
        where d.child_id = m.manifest_id
        order by p.name
    ),
    s.last_scheduled_for
from trax.manifest m
left join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.name = $1
