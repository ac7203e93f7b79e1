-- Returns the settings of a group, a row for each.
select e.key, e.value::text as value
from trax.manifest_group g
cross join lateral jsonb_each(to_jsonb(g) - array['created_at', 'updated_at', 'applied']) as e (key, value)
where g.name = $name
