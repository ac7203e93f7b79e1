-- The settings of a group as one object. $1 name
select to_jsonb(g) - array['created_at', 'updated_at']
from trax.manifest_group g
where g.name = $1
