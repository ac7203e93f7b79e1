-- Resets the satisfied edges of queued dependents.
update trax.manifest_dependency d
set satisfied_at = null, satisfied_by_job_id = null
where d.child_id = any ($child_ids)
    and d.satisfied_at is not null
