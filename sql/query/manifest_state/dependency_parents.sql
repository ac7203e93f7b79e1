-- Returns the edges that lead up from manifests.
select d.child_id, d.parent_id
from trax.manifest_dependency d
where d.child_id = any ($child_ids)
