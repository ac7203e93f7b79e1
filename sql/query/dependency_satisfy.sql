-- Notes that parents have succeeded. Side by side: $1 parents, $2 their jobs. $3 now
update trax.manifest_dependency d
set satisfied_at = $3, satisfied_by_job_id = p.job_id
from unnest($1, $2) as p (parent_id, job_id)
where d.parent_id = p.parent_id
