-- Returns one manifest. Laterals with an offset: planned while the tables are empty, plain joins
-- would read all of them.
select
    m.manifest_id, m.task, m.input, m.group_name, m.priority, m.max_retries, m.retry_delay, m.timeout, m.enabled,
    m.cron, m.every, m.run_at, m.timezone, m.starts_at, m.ends_at, m.disabled_reason,
    m.depends_mode, m.dormant, m.overlap, m.max_concurrency, m.variance, m.exclusions, m.on_dead_letter, m.run_as,
    s.last_success_at, s.next_run_at, s.next_scheduled_for, s.last_scheduled_for,
    array_remove(
        array(
            select (select p.name from trax.manifest p where p.manifest_id = d.parent_id)
            from trax.manifest_dependency d
            where d.child_id = m.manifest_id
            order by 1
        ),
        null
    ) as parents
from trax.manifest m
left join lateral (
    select t.last_success_at, t.next_run_at, t.next_scheduled_for, t.last_scheduled_for
    from trax.manifest_state t
    where t.manifest_id = m.manifest_id
    offset 0
) s on true
where m.name = $name
