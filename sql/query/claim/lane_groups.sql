-- Returns the groups whose jobs are claimed before others, or not at all. They are few, whatever
-- their limits: the index has only these.
select g.name, g.priority, g.enabled
from trax.manifest_group g
where g.priority <> 0
    or not g.enabled
