-- Deletes the states of manifests that no longer exist.
delete from trax.manifest_state s
where s.manifest_id = any ($manifest_ids)
    and not exists (
        select
        from trax.manifest m
        where m.manifest_id = s.manifest_id
    )
