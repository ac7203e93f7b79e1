-- Returns the settings of a rate, a row for each.
select e.key, e.value::text as value
from trax.rate r
cross join lateral jsonb_each(to_jsonb(r) - array['created_at', 'changed_at', 'applied']) as e (key, value)
where r.name = $name
