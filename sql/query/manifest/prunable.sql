-- Manifests that an earlier apply created. $1 names that stay
select m.manifest_id, m.name
from trax.manifest m
where m.applied
    and m.name <> all ($1)
order by m.name
