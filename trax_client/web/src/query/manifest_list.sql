-- Manifests ordered by name. $1 task, $2 group, $3 after this name, $4 limit.
select
    m.name,
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
    array(
        select r.state
        from trax.run r
        where r.manifest_id = m.manifest_id
        order by r.finished_at desc
        limit 12
    ) as outcomes
from trax.manifest m
left join trax.manifest_state s on s.manifest_id = m.manifest_id
where ($1::text is null or m.task = $1)
    and ($2::text is null or m.group_name = $2)
    and ($3::text is null or m.name > $3)
order by m.name
limit $4
