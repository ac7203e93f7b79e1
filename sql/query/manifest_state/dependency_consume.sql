-- Uses up what satisfied a dependent that is queued.
update trax.manifest_dependency d
set satisfied_at = null, satisfied_by_job_id = null
where d.child_id = any ($child_ids)
    and d.satisfied_at is not null
