-- Returns groups that an earlier apply created, but those that are kept.
select g.name
from trax.manifest_group g
where g.applied
    and g.name <> all ($kept)
order by g.name
