-- The reason why a job waits, and the jobs that it waits for. $1 job id.
with waiting as materialized (
    select q.*
    from trax.work_queue q
    where q.job_id = $1
)
select 'it is due later'::text as reason, null::bigint as job_id
from waiting w
where w.waits_for = 'time'
union all
(
    select 'a job with its concurrency key runs', l.job_id
    from waiting w
    join trax.lease l on l.concurrency_key = w.concurrency_key
    where w.waits_for = 'key'
    order by l.job_id
    limit 20
)
union all
(
    select 'a job of its manifest runs', l.job_id
    from waiting w
    join trax.lease l on l.manifest_id = w.manifest_id
    where w.waits_for = 'manifest'
    order by l.job_id
    limit 20
)
union all
select 'its group is disabled', null
from waiting w
join trax.manifest_group g on g.name = w.group_name
where not g.enabled
union all
select
    pg_catalog.format('its group runs %s of at most %s jobs', n.count, g.max_active_jobs),
    null
from waiting w
join trax.manifest_group g on g.name = w.group_name
cross join lateral (
    select count(*) as count
    from trax.lease l
    where l.group_name = w.group_name
        and l.limited
) n
where n.count >= g.max_active_jobs
union all
select
    pg_catalog.format(
        '%s jobs of its task and group stand before it',
        case when n.count > 1000 then 'more than 1000' else n.count::text end
    ),
    null
from waiting w
cross join lateral (
    select count(*) as count
    from (
        select
        from trax.work_queue q
        where q.lane_id = w.lane_id
            and q.waits_for is null
            and (
                q.priority > w.priority
                or (q.priority = w.priority and q.job_id < w.job_id)
            )
        limit 1001
    ) b
) n
where w.waits_for is null
