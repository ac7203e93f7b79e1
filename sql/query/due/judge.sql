-- Returns the reasons that keep due manifests from being queued. A previous statement has locked
-- them, so that this one's snapshot sees every outcome before the lock; later outcomes wait for the
-- cycle and see how it parked the manifests. Laterals with an offset: joins, planned while the
-- tables are empty, would read whole tables for each manifest.
select
    s.manifest_id, s.next_run_at, s.next_scheduled_for, s.parked_due_at is not null as was_parked, s.made_up,
    case
        when not m.enabled then 'disabled'
        when not coalesce((select g.enabled from trax.manifest_group g where g.name = m.group_name), true)
            then 'group_disabled'
        when m.on_dead_letter = 'stop' and exists (
            select
            from trax.dead_letter d
            where d.manifest_id = s.manifest_id
                and d.status = 'awaiting_intervention'
        ) then 'dead_letter'
        when exists (
            select
            from trax.work_queue q
            where q.manifest_id = s.manifest_id
                and q.scheduled_for is not null
        ) then 'queued'
        when (
            select count(*)
            from (
                select
                from trax.lease l
                where l.manifest_id = s.manifest_id
                limit m.max_concurrency
            ) l
        ) >= case when m.overlap = 'allow' then m.max_concurrency else 1 end then 'executing'
    end as blocked_on,
    m.cron, m.every, m.run_at, m.depends_mode, m.timezone, m.ends_at, m.misfire, m.misfire_threshold, m.misfire_limit,
    m.overlap, m.variance, m.exclusions, m.group_name, m.task, m.run_as, s.evaluation_failures,
    m.starts_at, m.max_concurrency, s.evaluation_failed_since
from unnest($manifest_ids) as d (manifest_id)
cross join lateral (
    select
        t.manifest_id, t.next_run_at, t.next_scheduled_for, t.parked_due_at, t.made_up, t.evaluation_failures,
        t.evaluation_failed_since
    from trax.manifest_state t
    where t.manifest_id = d.manifest_id
    offset 0
) s
cross join lateral (
    select
        f.enabled, f.group_name, f.max_concurrency, f.overlap, f.cron, f.every, f.run_at, f.depends_mode, f.timezone,
        f.starts_at, f.ends_at, f.misfire, f.misfire_threshold, f.misfire_limit, f.variance, f.exclusions, f.task,
        f.run_as, f.on_dead_letter
    from trax.manifest f
    where f.manifest_id = d.manifest_id
    offset 0
) m
