-- Switches a manifest on or off.
update trax.manifest m
set enabled = $enabled, disabled_reason = null, updated_at = $now
where m.manifest_id = $manifest_id
