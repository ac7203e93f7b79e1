-- The jobs of related manifests before and after a job: for each parent of its manifest the last
-- one that had completed when the job was queued, and for each child the first one queued after the
-- job had ended. $1 job id, $2 limit for each.
with me as materialized (
    select j.job_id, m.manifest_id, j.queued_at, j.finished_at
    from trax.job j
    join trax.manifest m on m.name = j.manifest
    where j.job_id = $1
)
(
    select 'parent' as side, p.name, r.job_id, r.state, r.finished_at as at
    from me
    join trax.manifest_dependency d on d.child_id = me.manifest_id
    join trax.manifest p on p.manifest_id = d.parent_id
    left join lateral (
        select r.job_id, r.state, r.finished_at
        from trax.run r
        where r.manifest_id = d.parent_id
            and r.state = 'completed'
            and r.finished_at <= me.queued_at
        order by r.finished_at desc
        limit 1
    ) r on true
    order by p.name
    limit $2
)
union all
(
    select 'child', c.name, r.job_id, r.state, r.at
    from me
    join trax.manifest_dependency d on d.parent_id = me.manifest_id
    join trax.manifest c on c.manifest_id = d.child_id
    left join lateral (
        select f.job_id, f.state, f.at
        from (
            (
                select e.job_id, e.state, e.finished_at as at
                from trax.run e
                where e.manifest_id = d.child_id
                    and e.final
                    and e.finished_at >= me.finished_at
                    and e.queued_at >= me.finished_at
                order by e.finished_at
                limit 1
            )
            union all
            (
                select l.job_id, 'in_progress', l.started_at
                from trax.lease l
                where l.manifest_id = d.child_id
                    and l.queued_at >= me.finished_at
                order by l.job_id
                limit 1
            )
            union all
            (
                select q.job_id, 'queued', q.run_at
                from trax.work_queue q
                where q.manifest_id = d.child_id
                    and q.queued_at >= me.finished_at
                order by q.job_id
                limit 1
            )
        ) f
        order by f.job_id
        limit 1
    ) r on true
    order by c.name
    limit $2
)
