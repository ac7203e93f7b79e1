-- Returns whether the edges of a dependent are satisfied.
select
    coalesce(bool_or(d.satisfied_at is not null), false)
    and (m.depends_mode = 'any' or bool_and(d.satisfied_at is not null))
from trax.manifest m
left join trax.manifest_dependency d on d.child_id = m.manifest_id
where m.manifest_id = $child_id
group by m.manifest_id, m.depends_mode
