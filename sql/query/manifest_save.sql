-- Creates or changes a manifest; null keeps. When $15, the three schedules are replaced together.
-- $1 name, $2 task, $3 input, $4 group, $5 cron, $6 every, $7 run at, $8 zone, $9 priority, $10 retries,
-- $11 retry delay, $12 timeout, $13 starts at, $14 ends at, $16 enabled, $17 now
insert into trax.manifest as m (
    name, task, input, group_name, cron, every, run_at, timezone, priority, max_retries, retry_delay, timeout,
    starts_at, ends_at, enabled, created_at, updated_at
)
values (
    $1, $2, coalesce($3, '{}'), coalesce($4, 'default'), $5, $6, $7, coalesce($8, 'UTC'), coalesce($9, 0), $10, $11,
    $12, $13, $14, coalesce($16, true), $17, $17
)
on conflict (name) do update set
    task = excluded.task,
    input = coalesce($3, m.input),
    group_name = coalesce($4, m.group_name),
    cron = case when $15 then $5 else m.cron end,
    every = case when $15 then $6 else m.every end,
    run_at = case when $15 then $7 else m.run_at end,
    timezone = coalesce($8, m.timezone),
    priority = coalesce($9, m.priority),
    max_retries = coalesce($10, m.max_retries),
    retry_delay = coalesce($11, m.retry_delay),
    timeout = coalesce($12, m.timeout),
    starts_at = coalesce($13, m.starts_at),
    ends_at = coalesce($14, m.ends_at),
    enabled = coalesce($16, m.enabled),
    disabled_reason = case when coalesce($16, m.enabled) then null else m.disabled_reason end,
    updated_at = $17
