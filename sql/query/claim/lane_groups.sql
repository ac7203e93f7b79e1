-- Returns the groups with another priority than the default, and disabled ones. They are few,
-- whatever the limits of groups: the index contains only these.
select g.name, g.priority, g.enabled
from trax.manifest_group g
where g.priority <> 0
    or not g.enabled
