-- Queues a job: $1 the task, $2 its input, $3 the group, $4 the priority, $5 max_retries, $6 the
-- timeout, $7 retry_delay, $8 the unique key, $9 the concurrency key, $10 the trace.
select trax.enqueue(
    task => $1,
    input => $2,
    group_name => $3,
    priority => $4,
    max_retries => $5,
    timeout => $6::interval,
    retry_delay => $7::interval,
    unique_key => $8,
    concurrency_key => $9,
    trace => $10
)
