-- Returns manifests that an earlier apply of a source created, except those in $kept.
select m.manifest_id, m.name
from trax.manifest m
where m.applied
    and m.source is not distinct from $source
    and m.name <> all ($kept)
order by m.name
