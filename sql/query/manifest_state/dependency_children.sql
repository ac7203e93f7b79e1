-- Returns the manifests that wait for the success of others.
select distinct d.child_id
from trax.manifest_dependency d
where d.parent_id = any ($parent_ids)
