-- Locks due manifests, the longest due of each group first, with what keeps each from being queued. $1 now, $2 groups,
-- $3 how many of each
select
    s.manifest_id, s.next_run_at, s.next_scheduled_for, s.parked_due_at is not null, s.made_up,
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
        when (
            select count(*)
            from (
                select
                from trax.lease l
                where l.manifest_id = s.manifest_id
                limit m.max_concurrency
            ) l
        ) >= case when m.overlap = 'allow' then m.max_concurrency else 1 end then 'executing'
    end,
    m.cron, m.every, m.run_at, m.depends_mode, m.timezone, m.ends_at, m.misfire, m.misfire_threshold, m.misfire_limit,
    m.overlap, m.variance, m.exclusions, m.group_name, m.task, s.evaluation_failures
from unnest($2, $3) as a (group_name, share)
cross join lateral (
    select t.manifest_id, t.next_run_at, t.next_scheduled_for, t.parked_due_at, t.made_up, t.evaluation_failures
    from trax.manifest_state t
    where t.group_name = a.group_name
        and t.next_run_at <= $1
    order by t.next_run_at
    limit a.share
    for update skip locked
) s
join trax.manifest m on m.manifest_id = s.manifest_id
left join trax.manifest_group g on g.name = m.group_name
