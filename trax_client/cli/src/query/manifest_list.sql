-- Manifests ordered by name, those stopped by a dead letter first. $1 task, $2 group, $3 part of
-- the name, $4 whether enabled, $5 limit.
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
    array(
        select p.name
        from trax.manifest_dependency d
        join trax.manifest p on p.manifest_id = d.parent_id
        where d.child_id = m.manifest_id
        order by p.name
    ) as depends_on,
    m.enabled,
    s.next_run_at,
    s.parked_on,
    m.on_dead_letter,
    t.dead_letter_id as stopped_by,
    s.last_queued_at,
    s.last_success_at,
    s.evaluation_error
from trax.manifest m
left join trax.manifest_state s on s.manifest_id = m.manifest_id
left join trax.stopped_schedule t on t.manifest = m.name
where ($1::text is null or m.task = $1)
    and ($2::text is null or m.group_name = $2)
    and ($3::text is null or position($3 in m.name) > 0)
    and ($4::boolean is null or m.enabled = $4)
order by t.manifest is null, m.name
limit $5
