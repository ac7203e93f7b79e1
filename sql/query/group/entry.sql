-- Returns how many jobs may wait in a group, and what happens to those beyond.
select g.max_waiting, g.overflow
from trax.manifest_group g
where g.name = $group
