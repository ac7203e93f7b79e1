-- Locks one dead letter.
select
    d.status, d.job_id, d.manifest_id, d.task, d.group_name, d.priority, d.max_retries, d.timeout, d.retry_delay,
    d.unique_key, d.concurrency_key, d.manifest, d.input, d.trace, d.run_as, d.steps,
    d.undone, d.version, d.rate, d.rate_key, d.cost
from trax.dead_letter d
where d.id = $id
for update
