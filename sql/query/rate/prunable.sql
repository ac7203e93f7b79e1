-- Returns rates that an earlier apply of a source created, except those in $kept.
select r.name
from trax.rate r
where r.applied
    and r.source is not distinct from $source
    and r.name <> all ($kept)
order by r.name
