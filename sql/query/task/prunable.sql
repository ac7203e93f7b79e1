-- Returns tasks whose defaults an earlier apply of a source created, except those in $kept.
select t.name
from trax.task t
where t.applied
    and t.source is not distinct from $source
    and t.name <> all ($kept)
order by t.name
