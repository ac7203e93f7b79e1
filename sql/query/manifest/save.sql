-- Creates or changes a manifest. A null keeps the stored value, or with $replace sets the default;
-- $replace_schedule replaces the kind of schedule. $applied: created by trax.apply(); $source takes
-- it over. $row and $had are the row and the parents before the change, $parents those after it;
-- `changes` is null if no setting differs.
insert into trax.manifest as m (
    name, task, input, group_name, cron, every, run_at, timezone, priority, max_retries, retry_delay, timeout,
    starts_at, ends_at, enabled, created_at, updated_at, depends_mode, dormant, misfire, misfire_threshold,
    misfire_limit, overlap, max_concurrency, variance, exclusions, applied, on_dead_letter, source, run_as
)
values (
    $name, $task, coalesce($input, '{}'), coalesce($group, 'default'), $cron, $every, $run_at,
    coalesce($timezone, 'UTC'), coalesce($priority, 0), $max_retries, $retry_delay, $timeout, $starts_at, $ends_at,
    coalesce($enabled, true), $now, $now, $depends_mode, coalesce($dormant, false), coalesce($misfire, 'fire_once'),
    coalesce($misfire_threshold, '60 s'), coalesce($misfire_limit, 10), coalesce($overlap, 'queue'),
    coalesce($max_concurrency, 1), $variance, $exclusions, $applied,
    coalesce($on_dead_letter, current_setting('trax.on_dead_letter')), $source, $run_as
)
on conflict (name) do update set
    task = excluded.task,
    run_as = excluded.run_as,
    input = case when $replace then excluded.input else coalesce($input, m.input) end,
    group_name = case when $replace then excluded.group_name else coalesce($group, m.group_name) end,
    cron = case when $replace_schedule then $cron else m.cron end,
    every = case when $replace_schedule then $every else m.every end,
    run_at = case when $replace_schedule then $run_at else m.run_at end,
    depends_mode = case when $replace_schedule then $depends_mode else coalesce($depends_mode, m.depends_mode) end,
    dormant = case when $replace_schedule then coalesce($dormant, false) else coalesce($dormant, m.dormant) end,
    timezone = case when $replace then excluded.timezone else coalesce($timezone, m.timezone) end,
    priority = case when $replace then excluded.priority else coalesce($priority, m.priority) end,
    max_retries = case when $replace then $max_retries else coalesce($max_retries, m.max_retries) end,
    retry_delay = case when $replace then $retry_delay else coalesce($retry_delay, m.retry_delay) end,
    timeout = case when $replace then $timeout else coalesce($timeout, m.timeout) end,
    starts_at = case when $replace then $starts_at else coalesce($starts_at, m.starts_at) end,
    ends_at = case when $replace then $ends_at else coalesce($ends_at, m.ends_at) end,
    misfire = case when $replace then excluded.misfire else coalesce($misfire, m.misfire) end,
    misfire_threshold = case
        when $replace then excluded.misfire_threshold
        else coalesce($misfire_threshold, m.misfire_threshold)
    end,
    misfire_limit = case when $replace then excluded.misfire_limit else coalesce($misfire_limit, m.misfire_limit) end,
    overlap = case when $replace then excluded.overlap else coalesce($overlap, m.overlap) end,
    max_concurrency = case
        when $replace then excluded.max_concurrency
        else coalesce($max_concurrency, m.max_concurrency)
    end,
    variance = case when $replace then $variance else coalesce($variance, m.variance) end,
    exclusions = case when $replace then $exclusions else coalesce($exclusions, m.exclusions) end,
    on_dead_letter = case
        when $replace then excluded.on_dead_letter
        else coalesce($on_dead_letter, m.on_dead_letter)
    end,
    enabled = coalesce($enabled, m.enabled),
    disabled_reason = case when coalesce($enabled, m.enabled) then null else m.disabled_reason end,
    applied = m.applied or $source is not null,
    source = coalesce($source, m.source),
    updated_at = $now
returning
    m.manifest_id, m.task, m.input, m.group_name, m.priority, m.max_retries, m.retry_delay, m.timeout, m.enabled,
    m.cron, m.every, m.run_at, m.timezone, m.starts_at, m.ends_at, m.disabled_reason,
    m.depends_mode, m.dormant, m.overlap, m.max_concurrency, m.variance, m.exclusions, m.on_dead_letter, m.run_as,
    (
        select string_agg(
            e.key || ': ' || coalesce((b.settings -> e.key)::text, 'null') || ' -> ' || e.value::text,
            ', '
            order by e.key collate "C"
        )
        from (
            select $row || jsonb_build_object('depends_on', $had) as settings
        ) b
        cross join lateral jsonb_each(
            to_jsonb(m)
            - array['manifest_id', 'created_at', 'updated_at', 'applied', 'disabled_reason']
            || jsonb_build_object('depends_on', $parents)
        ) as e (key, value)
        where (b.settings -> e.key)::text is distinct from e.value::text
    ) as changes
