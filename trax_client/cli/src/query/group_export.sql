-- Stored settings of groups as JSON, in the order of their names. $1 names.
select to_jsonb(g)
from trax.manifest_group g
where $1::text[] is null
    or g.name = any ($1)
order by g.name
