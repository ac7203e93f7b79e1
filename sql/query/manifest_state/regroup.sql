-- Stores the group of a manifest.
update trax.manifest_state s
set group_name = $group
where s.manifest_id = $manifest_id
    and s.group_name <> $group
