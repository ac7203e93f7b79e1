-- Queues a statement again, with the columns of ended_job.sql: as the role that it ran as, if its
-- dead letter has that, otherwise as the caller.
select trax.enqueue_sql(
    command => $12,
    group_name => $4,
    priority => $5::int,
    max_retries => $6::int,
    timeout => $7::interval,
    retry_delay => $8::interval,
    unique_key => $9,
    concurrency_key => $10,
    run_as => $13
)::text
