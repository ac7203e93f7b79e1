-- Locks due manifests, the longest due first, with what keeps each from being queued. $1 now, $2 at most
select
    s.manifest_id, s.next_run_at, s.parked_due_at is not null, m.cron, m.every, m.run_at, m.timezone, m.ends_at,
    case
        when not m.enabled then 'disabled'
        when not coalesce(g.enabled, true) then 'group_disabled'
        when exists (
            select
            from trax.dead_letter d
            where d.manifest_id = s.manifest_id
                and d.status = 'awaiting_intervention'
        ) then 'dead_letter'
        when exists (
            select
            from trax.work_queue q
            where q.manifest_id = s.manifest_id
                and q.scheduled_for is not null
        ) then 'queued'
        when exists (
            select
            from trax.lease l
            where l.manifest_id = s.manifest_id
        ) then 'executing'
    end,
    m.misfire_threshold, m.group_name, m.task
from (
    select t.manifest_id, t.next_run_at, t.parked_due_at
    from trax.manifest_state t
    where t.next_run_at <= $1
    order by t.next_run_at
    limit $2
    for update skip locked
) s
join trax.manifest m on m.manifest_id = s.manifest_id
left join trax.manifest_group g on g.name = m.group_name
