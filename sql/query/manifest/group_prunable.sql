-- Returns groups that an earlier apply of a source created, except those in $kept.
select g.name
from trax.manifest_group g
where g.applied
    and g.source is not distinct from $source
    and g.name <> all ($kept)
order by g.name
