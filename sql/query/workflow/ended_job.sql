-- Returns a job that has ended.
select r.task, r.group_name, r.priority, r.input, r.steps, r.version, r.rate, r.rate_key, r.cost,
    r.max_retries, r.timeout, r.retry_delay, r.concurrency_key, r.trace, r.state = 'completed' as succeeded
from trax.run r
where r.job_id = $job_id
    and r.final
limit 1
