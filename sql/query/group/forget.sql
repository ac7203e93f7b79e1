-- Deletes the settings of a group.
delete from trax.manifest_group g
where g.name = $name
