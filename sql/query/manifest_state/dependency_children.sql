-- The manifests that wait for the success of others. $1 parents
select distinct d.child_id
from trax.manifest_dependency d
where d.parent_id = any ($1)
