-- Returns the groups with a limit of waiting jobs.
select g.name, g.max_waiting, g.overflow
from trax.manifest_group g
where g.max_waiting is not null
