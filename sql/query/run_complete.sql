-- Records completions. $1 jobs in ascending order, $2 tokens and $3 outputs beside them, $4 now
with ended as (
    delete from trax.lease l
    using unnest($1, $2, $3) as o (job_id, token, output)
    where l.job_id = o.job_id
        and l.token = o.token
    returning
        l.job_id, l.queued_at, l.run_at, l.scheduled_for, l.started_at, l.manifest_id, l.attempt, l.priority,
        l.task, l.group_name, l.manifest, l.worker, l.unique_key, l.concurrency_key, l.limited, l.input, o.output
), recorded as (
    insert into trax.run (
        job_id, queued_at, run_at, scheduled_for, started_at, finished_at, manifest_id, attempt, priority, final,
        state, task, group_name, manifest, worker, input, output
    )
    select
        e.job_id, e.queued_at, e.run_at, e.scheduled_for, e.started_at, $4, e.manifest_id, e.attempt, e.priority, true,
        'completed', e.task, e.group_name, e.manifest, e.worker, e.input, e.output
    from ended e
)
select
    e.job_id, e.manifest_id, e.unique_key, e.concurrency_key, e.limited,
    e.task, e.run_at, e.started_at
from ended e
