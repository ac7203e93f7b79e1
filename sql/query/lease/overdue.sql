-- Locks leases that the reaper has to look at, from $begin on.
select
    l.job_id, l.attempt, l.max_retries, l.retry_delay, l.cancelled, l.timed_out, l.manifest_id, l.unique_key,
    l.concurrency_key, case when l.limited then l.group_name end as limited_group, l.task, l.started_at, l.parent_job_id,
    l.token, coalesce(l.extended_at, l.started_at) as extended_at, l.lease_expires_at, l.timeout_at, l.ahead
from trax.lease l
where l.reap_at <= $now
    and l.reap_at >= $begin
order by l.reap_at
limit $at_most
for update skip locked
