-- Queues a job again, with the columns of ended_job.sql.
select trax.enqueue(
    task => $2,
    input => $3::jsonb,
    group_name => $4,
    priority => $5::int,
    max_retries => $6::int,
    timeout => $7::interval,
    retry_delay => $8::interval,
    unique_key => $9,
    concurrency_key => $10,
    trace => $11::jsonb,
    version => $15,
    rate => $16,
    rate_key => $17,
    cost => $18::int
)::text
