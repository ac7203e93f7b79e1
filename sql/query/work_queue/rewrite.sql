-- Changes a waiting job that is locked. A null of the later values keeps the stored one, or removes
-- it when all of them are replaced.
update trax.work_queue q
set lane_id = $lane_id,
    waits_for = $waits_for,
    run_at = $run_at,
    group_name = $group,
    priority = $priority,
    input = coalesce($input, q.input),
    max_retries = case when $replaces then $max_retries else coalesce($max_retries, q.max_retries) end,
    timeout = case when $replaces then $timeout else coalesce($timeout, q.timeout) end,
    retry_delay = case when $replaces then $retry_delay else q.retry_delay end,
    concurrency_key = $concurrency_key,
    trace = case when $replaces then $trace else q.trace end,
    version = $version,
    run_as = $run_as,
    rate = $rate,
    rate_key = $rate_key,
    cost = $cost
where q.job_id = $job_id
