-- Deletes a manifest: its definition, its state and its edges.
with removed as (
    delete from trax.manifest m
    where m.manifest_id = $manifest_id
    returning m.manifest_id
), state as (
    delete from trax.manifest_state s
    using removed r
    where s.manifest_id = r.manifest_id
), edges as (
    delete from trax.manifest_dependency d
    using removed r
    where d.child_id = r.manifest_id
        or d.parent_id = r.manifest_id
)
select r.manifest_id
from removed r
