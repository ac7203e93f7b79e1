-- Groups that an earlier apply created. $1 names that stay
select g.name
from trax.manifest_group g
where g.applied
    and g.name <> all ($1)
order by g.name
