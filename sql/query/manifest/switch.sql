-- Enables or disables a manifest.
update trax.manifest m
set enabled = $enabled, disabled_reason = null, updated_at = $now
where m.manifest_id = $manifest_id
