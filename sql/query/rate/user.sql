-- Returns one of the groups and jobs that name a rate.
(
    select 'group "' || g.name || '"' as named_by
    from trax.manifest_group g
    where g.rate = $name
    order by g.name
    limit 1
)
union all
(
    select 'job ' || q.job_id || ', which waits'
    from trax.work_queue q
    where q.rate = $name
    limit 1
)
union all
(
    select 'job ' || l.job_id || ', which runs'
    from trax.lease l
    where l.rate = $name
    limit 1
)
limit 1
