-- Forgets the settings of a group. $1 name
delete from trax.manifest_group g
where g.name = $1
