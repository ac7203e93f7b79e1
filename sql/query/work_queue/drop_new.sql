-- Records new jobs that are not queued as cancelled runs. Jobs and inputs are parallel arrays.
insert into trax.run (
    job_id, queued_at, run_at, finished_at, attempt, priority, final, state, task, group_name, error, input,
    parent_job_id, version, rate, rate_key, cost, max_retries, timeout, retry_delay, concurrency_key, trace
)
select
    n.job_id, $now, $run_at, $now, 0, $priority, true, 'cancelled', $task, $group, $reason, n.input, $parent_job_id,
    $version, $rate, $rate_key, $cost, $max_retries, $timeout, $retry_delay, $concurrency_key, $trace
from unnest($job_ids, $inputs) as n (job_id, input)
