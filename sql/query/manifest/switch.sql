-- Switches a manifest on or off. $1 manifest, $2 enabled, $3 now
update trax.manifest m
set enabled = $2, disabled_reason = null, updated_at = $3
where m.manifest_id = $1
