-- Returns the dependents whose edges are satisfied and that are not dormant.
select m.manifest_id
from trax.manifest m
where m.manifest_id = any ($child_ids)
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
