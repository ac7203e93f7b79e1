-- Returns the roles that have ready SQL jobs in enabled groups with room, the role with the oldest
-- job first: the number of jobs, up to $at_most, when the oldest became ready, and whether the role
-- may connect here.
with recursive role as (
    (
        select q.run_as
        from trax.work_queue q
        where q.run_as is not null
            and q.waits_for is null
        order by q.run_as
        limit 1
    )
    union all
    select n.run_as
    from role r
    cross join lateral (
        select q.run_as
        from trax.work_queue q
        where q.run_as operator(pg_catalog.>) r.run_as
            and q.run_as is not null
            and q.waits_for is null
        order by q.run_as
        limit 1
    ) n
)
select
    r.run_as, a.oid as role_oid, w.jobs, w.since,
    coalesce(
        a.rolcanlogin
            and (a.rolsuper or a.rolconnlimit <> 0)
            and pg_catalog.has_database_privilege(a.oid, pg_catalog.current_database(), 'connect'),
        false
    ) as may_connect
from role r
cross join lateral (
    select pg_catalog.count(*) as jobs, pg_catalog.min(o.ready_at) as since
    from (
        select greatest(q.run_at, q.queued_at) as ready_at
        from trax.work_queue q
        where q.run_as = r.run_as
            and q.waits_for is null
            and not exists (
                select
                from trax.manifest_group g
                where g.name = q.group_name
                    and (
                        not g.enabled
                        or g.max_active_jobs <= (
                            select pg_catalog.count(*)
                            from trax.lease l
                            where l.group_name = g.name
                        )
                    )
            )
        order by q.job_id
        limit $at_most
    ) o
) w
left join pg_catalog.pg_roles a on a.rolname = r.run_as
where w.jobs > 0
order by w.since, r.run_as
