-- Returns the defaults of all tasks that have some.
select
    t.name, t.max_retries, t.retry_delay, t.backoff, t.retry_delay_max, t.timeout,
    t.on_final_failure = 'acknowledge' as acknowledges
from trax.task t
