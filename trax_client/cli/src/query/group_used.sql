-- The groups that have settings, and those that have none and are used by manifests or live jobs.
-- $1 at most.
select n.name, exists (select from trax.manifest_group g where g.name = n.name) as is_configured
from (
    select g.name
    from trax.manifest_group g
    union
    select m.group_name
    from trax.manifest m
    union
    select l.group_name
    from trax.lane l
    union
    select l.group_name
    from trax.lease l
) n
order by n.name
limit $1
