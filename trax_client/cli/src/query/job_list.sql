-- Jobs that match all filters, newest first. $1 states, $2 tasks, $3 groups, $4 manifest, $5
-- manifest id if it exists, $6 workers, $7 since, $8 limit.
--
-- Each part is ordered by its own index and limited separately, so that a page of ten million runs
-- is read from the end of the index; as a single union the planner sorts all rows (5 s). A
-- selective condition has an index of its own (state failed, a manifest), or only the days since $7
-- are read.
select
    j.job_id,
    j.state,
    j.attempt,
    j.task,
    j.group_name,
    j.manifest,
    j.priority,
    j.waits_for,
    j.run_at,
    j.scheduled_for,
    j.queued_at,
    j.started_at,
    j.finished_at,
    j.worker,
    case
        when j.state = 'queued' and j.attempt > 0 then (
            select e.error
            from trax.run e
            where e.job_id = j.job_id
            order by e.attempt desc
            limit 1
        )
        else j.error
    end as error
from (
    (
        select
            q.job_id,
            'queued'::text as state,
            q.attempts as attempt,
            q.task,
            q.group_name,
            q.manifest,
            q.priority,
            q.waits_for,
            q.run_at,
            q.scheduled_for,
            q.queued_at,
            null::timestamptz as started_at,
            null::timestamptz as finished_at,
            null::text as worker,
            null::text as error
        from trax.work_queue q
        where ($1::text[] is null or 'queued' = any ($1))
            and ($2::text[] is null or q.task = any ($2))
            and ($3::text[] is null or q.group_name = any ($3))
            and ($4::text is null or q.manifest = $4)
            and ($5::bigint is null or q.manifest_id = $5)
            and $6::text[] is null
            and ($7::timestamptz is null or q.queued_at >= $7)
        order by q.job_id desc
        limit $8
    )
    union all
    (
        select
            l.job_id,
            'in_progress',
            l.attempt,
            l.task,
            l.group_name,
            l.manifest,
            l.priority,
            null,
            l.run_at,
            l.scheduled_for,
            l.queued_at,
            l.started_at,
            null,
            l.worker,
            null
        from trax.lease l
        where ($1::text[] is null or 'in_progress' = any ($1))
            and ($2::text[] is null or l.task = any ($2))
            and ($3::text[] is null or l.group_name = any ($3))
            and ($4::text is null or l.manifest = $4)
            and ($5::bigint is null or l.manifest_id = $5)
            and ($6::text[] is null or l.worker = any ($6))
        order by l.job_id desc
        limit $8
    )
    union all
    (
        select
            r.job_id,
            r.state,
            r.attempt,
            r.task,
            r.group_name,
            r.manifest,
            r.priority,
            null,
            r.run_at,
            r.scheduled_for,
            r.queued_at,
            r.started_at,
            r.finished_at,
            r.worker,
            r.error
        from trax.run r
        where r.final
            and ($1::text[] is null or r.state = any ($1))
            and ($2::text[] is null or r.task = any ($2))
            and ($3::text[] is null or r.group_name = any ($3))
            and ($4::text is null or r.manifest = $4)
            and ($5::bigint is null or r.manifest_id = $5)
            and ($6::text[] is null or r.worker = any ($6))
            and ($7::timestamptz is null or r.finished_at >= $7)
        order by r.job_id desc
        limit $8
    )
) j
order by j.job_id desc
limit $8
