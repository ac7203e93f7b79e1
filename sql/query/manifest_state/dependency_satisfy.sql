-- Records the success of parents, for children whose states are locked: a child added meanwhile
-- misses it. Parents and their jobs are parallel arrays.
update trax.manifest_dependency d
set satisfied_at = $now, satisfied_by_job_id = p.job_id
from unnest($parent_ids, $job_ids) as p (parent_id, job_id)
where d.parent_id = p.parent_id
    and d.child_id = any ($child_ids)
