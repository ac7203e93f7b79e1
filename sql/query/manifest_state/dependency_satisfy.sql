-- Notes that parents have succeeded, for children whose states are locked: one that appears
-- meanwhile has missed it. Side by side: $1 parents, $2 their jobs. $3 now, $4 children
update trax.manifest_dependency d
set satisfied_at = $3, satisfied_by_job_id = p.job_id
from unnest($1, $2) as p (parent_id, job_id)
where d.parent_id = p.parent_id
    and d.child_id = any ($4)
