-- Stored settings of groups as JSON, ordered by name. $1 names.
select to_jsonb(g)
from trax.manifest_group g
where $1::text[] is null
    or g.name = any ($1)
order by g.name
