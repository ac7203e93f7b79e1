-- Forgets the states of manifests that are no more.
delete from trax.manifest_state s
where s.manifest_id = any ($manifest_ids)
    and not exists (
        select
        from trax.manifest m
        where m.manifest_id = s.manifest_id
    )
