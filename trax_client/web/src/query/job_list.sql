-- Jobs that match all filters, newest first, and the job down to which all were examined. $1 state,
-- $2 task, $3 group, $4 manifest, $5 worker, $6 part of the error, $7 concurrency or unique key, $8
-- before this job, $9 rows of each table to examine, $10 limit, $11 reason for waiting: worker,
-- time, job, signal, jobs or suspended, $12 due, started or ended at or after this time, $13 before
-- this time, $14 within this interval, $15 a JSON path that exists in the input, or a predicate
-- that holds, $16 the job that spawned it.
--
-- A filter that few of ten million runs match would read them all, so each query examines at most
-- $9 rows, and the user asks for the next ones. If a table was examined in part, jobs of the other
-- tables beyond that part are left for the next query too. Failures since a time have an index, and
-- are found however many other jobs ended since.
with since as materialized (
    select greatest($12::timestamptz, pg_catalog.now() - $14::interval) as at
),
waiting as materialized (
    select
        q.job_id, 'queued'::text as state, q.attempts as attempt, q.task, q.group_name, q.manifest,
        q.waits_for, q.run_at as at, null::timestamptz as started_at, null::timestamptz as finished_at,
        null::text as worker, null::text as error, q.concurrency_key, q.unique_key, q.input, q.parent_job_id, true as final
    from trax.work_queue q
    where ($1::text is null or $1 = 'queued')
        and q.job_id < $8
    order by q.job_id desc
    limit $9
),
running as materialized (
    select
        l.job_id, 'in_progress'::text as state, l.attempt, l.task, l.group_name, l.manifest,
        null::text as waits_for, l.started_at as at, l.started_at, null::timestamptz as finished_at,
        l.worker, null::text as error, l.concurrency_key, l.unique_key, l.input, l.parent_job_id, true as final
    from trax.lease l
    where ($1::text is null or $1 = 'in_progress')
        and l.job_id < $8
    order by l.job_id desc
    limit $9
),
failed as materialized (
    select
        r.job_id, r.state, r.attempt, r.task, r.group_name, r.manifest,
        null::text as waits_for, r.finished_at as at, r.started_at, r.finished_at,
        r.worker, r.error, null::text as concurrency_key, null::text as unique_key, r.input, r.parent_job_id, r.final
    from (
        select f.*
        from trax.run f
        where $1 = 'failed'
            and f.final
            and f.state = 'failed'
            and f.finished_at >= (select s.at from since s)
            and f.finished_at < coalesce($13::timestamptz, 'infinity')
        offset 0
    ) r
    where r.job_id < $8
    order by r.job_id desc
    limit $9
),
ended as materialized (
    select
        r.job_id, r.state, r.attempt, r.task, r.group_name, r.manifest,
        null::text as waits_for, r.finished_at as at, r.started_at, r.finished_at,
        r.worker, r.error, null::text as concurrency_key, null::text as unique_key, r.input, r.parent_job_id, r.final
    from trax.run r
    where ($1::text is null or $1 in ('completed', 'failed', 'cancelled'))
        and ($1 is distinct from 'failed' or (select s.at is null from since s))
        and r.job_id < $8
    order by r.job_id desc
    limit $9
),
looked as (
    select max(p.edge) as edge
    from (
        select case when count(*) = $9 then min(w.job_id) end as edge
        from waiting w
        union all
        select case when count(*) = $9 then min(u.job_id) end
        from running u
        union all
        select case when count(*) = $9 then min(f.job_id) end
        from failed f
        union all
        select case when count(*) = $9 then min(e.job_id) end
        from ended e
    ) p
)
select
    j.job_id, j.state, j.attempt, j.task, j.group_name, j.manifest, j.waits_for, j.at,
    j.started_at, j.finished_at, j.worker, pg_catalog.left(j.error, 300) as error, k.edge,
    j.matching
from looked k
left join lateral (
    select a.*, count(*) over () as matching
    from (
        select * from waiting
        union all
        select * from running
        union all
        select * from failed
        union all
        select * from ended
    ) a
    where a.final
        and a.job_id >= coalesce(k.edge, 0)
        and ($1::text is null or a.state = $1)
        and ($2::text is null or a.task = $2)
        and ($3::text is null or a.group_name = $3)
        and ($4::text is null or a.manifest = $4)
        and ($5::text is null or a.worker = $5)
        and ($6::text is null or pg_catalog.strpos(a.error, $6) > 0)
        and ($7::text is null or a.concurrency_key = $7 or a.unique_key = $7)
        and (
            $11::text is null
            or a.state = 'queued'
                and coalesce(a.waits_for, 'worker')
                    = any (case $11 when 'job' then '{key,manifest}' when 'suspended' then '{signal,jobs}' else array[$11] end)
        )
        and ($16::text is null or a.parent_job_id = $16::bigint)
        and ($12::text is null or a.at >= $12::timestamptz)
        and ($13::text is null or a.at < $13::timestamptz)
        and (
            $14::text is null
            or a.at between pg_catalog.now() - $14::interval and pg_catalog.now() + $14::interval
        )
        and case
            when $15::text is null then true
            -- A predicate is written in parentheses.
            when $15::jsonpath::text like '(%'
                then coalesce(pg_catalog.jsonb_path_match(a.input, $15::jsonpath, silent => true), false)
            else pg_catalog.jsonb_path_exists(a.input, $15::jsonpath, silent => true)
        end
    order by a.job_id desc
    limit $10
) j on true
order by j.job_id desc
