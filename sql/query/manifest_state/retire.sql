-- Disables manifests that have had their only run.
update trax.manifest m
set enabled = false, disabled_reason = 'its one run has ended', updated_at = $now
where m.manifest_id = any ($manifest_ids)
    and m.enabled
