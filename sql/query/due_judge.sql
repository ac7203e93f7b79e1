-- What keeps due manifests from being queued. $1 manifests, locked by a statement before, so that this one's snapshot
-- sees every outcome that came before the lock; later ones wait for the cycle and see how it parked them.
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
from unnest($1) as d (manifest_id)
join trax.manifest_state s on s.manifest_id = d.manifest_id
join trax.manifest m on m.manifest_id = s.manifest_id
left join trax.manifest_group g on g.name = m.group_name
