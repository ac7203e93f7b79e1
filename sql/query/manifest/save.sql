-- Creates or changes a manifest. What is null keeps its value, or with $15 takes its default; with
-- $16 the kind of schedule is replaced. $1 name, $2 task, $3 input, $4 group, $5 cron, $6 every, $7
-- run at, $8 zone, $9 priority, $10 retries, $11 retry delay, $12 timeout, $13 starts at, $14 ends
-- at, $17 enabled, $18 now, $19 depends mode, $20 dormant, $21 misfire, $22 misfire threshold, $23
-- misfire limit, $24 overlap, $25 max concurrency, $26 variance, $27 exclusions, $28 created by
-- trax.apply()
insert into trax.manifest as m (
    name, task, input, group_name, cron, every, run_at, timezone, priority, max_retries, retry_delay, timeout,
    starts_at, ends_at, enabled, created_at, updated_at, depends_mode, dormant, misfire, misfire_threshold,
    misfire_limit, overlap, max_concurrency, variance, exclusions, applied
)
values (
    $1, $2, coalesce($3, '{}'), coalesce($4, 'default'), $5, $6, $7, coalesce($8, 'UTC'), coalesce($9, 0), $10, $11,
    $12, $13, $14, coalesce($17, true), $18, $18, $19, coalesce($20, false), coalesce($21, 'fire_once'),
    coalesce($22, '60 s'), coalesce($23, 10), coalesce($24, 'queue'), coalesce($25, 1), $26, $27, $28
)
on conflict (name) do update set
    task = excluded.task,
    input = case when $15 then excluded.input else coalesce($3, m.input) end,
    group_name = case when $15 then excluded.group_name else coalesce($4, m.group_name) end,
    cron = case when $16 then $5 else m.cron end,
    every = case when $16 then $6 else m.every end,
    run_at = case when $16 then $7 else m.run_at end,
    depends_mode = case when $16 then $19 else coalesce($19, m.depends_mode) end,
    dormant = case when $16 then coalesce($20, false) else coalesce($20, m.dormant) end,
    timezone = case when $15 then excluded.timezone else coalesce($8, m.timezone) end,
    priority = case when $15 then excluded.priority else coalesce($9, m.priority) end,
    max_retries = case when $15 then $10 else coalesce($10, m.max_retries) end,
    retry_delay = case when $15 then $11 else coalesce($11, m.retry_delay) end,
    timeout = case when $15 then $12 else coalesce($12, m.timeout) end,
    starts_at = case when $15 then $13 else coalesce($13, m.starts_at) end,
    ends_at = case when $15 then $14 else coalesce($14, m.ends_at) end,
    misfire = case when $15 then excluded.misfire else coalesce($21, m.misfire) end,
    misfire_threshold = case when $15 then excluded.misfire_threshold else coalesce($22, m.misfire_threshold) end,
    misfire_limit = case when $15 then excluded.misfire_limit else coalesce($23, m.misfire_limit) end,
    overlap = case when $15 then excluded.overlap else coalesce($24, m.overlap) end,
    max_concurrency = case when $15 then excluded.max_concurrency else coalesce($25, m.max_concurrency) end,
    variance = case when $15 then $26 else coalesce($26, m.variance) end,
    exclusions = case when $15 then $27 else coalesce($27, m.exclusions) end,
    enabled = coalesce($17, m.enabled),
    disabled_reason = case when coalesce($17, m.enabled) then null else m.disabled_reason end,
    updated_at = $18
returning m.manifest_id
