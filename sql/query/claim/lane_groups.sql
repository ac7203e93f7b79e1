-- Returns the groups with a rate or another priority than the default, and disabled ones. They are
-- few, whatever the limits of groups: the index contains only these.
select g.name, g.priority, g.enabled, g.rate
from trax.manifest_group g
where g.priority <> 0
    or not g.enabled
    or g.rate is not null
