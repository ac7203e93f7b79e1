-- Switches off manifests that have had their one run. $1 manifests, $2 now
update trax.manifest m
set enabled = false, disabled_reason = 'its one run has ended', updated_at = $2
where m.manifest_id = any ($1)
    and m.enabled
