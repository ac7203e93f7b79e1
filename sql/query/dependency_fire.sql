-- Makes dependents due whose edges are satisfied; their states are locked. $1 children, $2 now
update trax.manifest_state s
set
    next_run_at = case when s.parked_on is null then coalesce(s.next_run_at, $2) end,
    next_scheduled_for = case when s.parked_on is null then coalesce(s.next_scheduled_for, $2) end,
    parked_due_at = case
        when s.parked_on in ('group_disabled', 'dead_letter', 'queued', 'executing') then coalesce(s.parked_due_at, $2)
        else s.parked_due_at
    end
from trax.manifest m
where s.manifest_id = any ($1)
    and m.manifest_id = s.manifest_id
    and m.enabled
    and not m.dormant
    and exists (
        select
        from trax.manifest_dependency d
        where d.child_id = m.manifest_id
            and d.satisfied_at is not null
    )
    and (
        m.depends_mode = 'any'
        or not exists (
            select
            from trax.manifest_dependency d
            where d.child_id = m.manifest_id
                and d.satisfied_at is null
        )
    )
