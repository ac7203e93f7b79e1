-- The tasks that have defaults of their own.
select
    t.name, t.max_retries, t.retry_delay::text as retry_delay, t.backoff, t.retry_delay_max::text as retry_delay_max,
    t.timeout::text as timeout, t.on_final_failure
from trax.task t
order by t.name
