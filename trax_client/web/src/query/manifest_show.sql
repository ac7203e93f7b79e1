-- A manifest with its parents and children. $1 name.
select
    m.name,
    m.manifest_id,
    m.task,
    m.group_name,
    m.cron,
    m.timezone,
    m.every::text as every,
    m.run_at,
    m.depends_mode,
    m.dormant,
    m.enabled,
    s.next_run_at,
    s.parked_on,
    s.last_success_at,
    s.evaluation_error,
    m.run_as,
    pg_catalog.left(pg_catalog.jsonb_pretty(m.input), 20000) as input,
    array(
        select p.name
        from trax.manifest_dependency d
        join trax.manifest p on p.manifest_id = d.parent_id
        where d.child_id = m.manifest_id
        order by p.name
        limit 100
    ) as parents,
    array(
        select c.name
        from trax.manifest_dependency d
        join trax.manifest c on c.manifest_id = d.child_id
        where d.parent_id = m.manifest_id
        order by c.name
        limit 100
    ) as children
from trax.manifest m
left join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.name = $1
