-- Switches off a manifest that cannot be evaluated. $1 manifest, $2 why, $3 now
update trax.manifest m
set enabled = false, disabled_reason = $2, updated_at = $3
where m.manifest_id = $1
