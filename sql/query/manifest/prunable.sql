-- Returns manifests that an earlier apply created, but those that are kept.
select m.manifest_id, m.name
from trax.manifest m
where m.applied
    and m.name <> all ($kept)
order by m.name
