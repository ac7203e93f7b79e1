-- Notes the group of a manifest. $1 manifest, $2 group
update trax.manifest_state s
set group_name = $2
where s.manifest_id = $1
    and s.group_name <> $2
