-- Writes missing dead letters: one for each job that failed for good since $since and has none,
-- unless its manifest had an unresolved one when it failed. The offsets keep both
-- from becoming joins, for which a plan made on empty tables would read all history.
insert into trax.dead_letter (
    job_id, manifest_id, attempts, priority, created_at, manifest, task, group_name, reason, last_error, input,
    steps, version, rate, rate_key, cost, max_retries, timeout, retry_delay, concurrency_key, trace, undone
)
select
    r.job_id, r.manifest_id, r.attempt, r.priority, $now, r.manifest, r.task, r.group_name, 'attempts spent', r.error,
    r.input, r.steps, r.version, r.rate, r.rate_key, r.cost,
    r.max_retries, r.timeout, r.retry_delay, r.concurrency_key, r.trace,
    exists (select from jsonb_array_elements(r.steps) s (step) where s.step ? 'undo')
from trax.run r
where r.final
    and r.state = 'failed'
    and r.finished_at >= $since
    and not exists (
        select
        from trax.dead_letter d
        where d.job_id = r.job_id
        offset 0
    )
    and not exists (
        select
        from trax.dead_letter d
        where d.manifest_id = r.manifest_id
            and d.created_at <= r.finished_at
            and (d.resolved_at is null or d.resolved_at >= r.finished_at)
        offset 0
    )
on conflict do nothing
