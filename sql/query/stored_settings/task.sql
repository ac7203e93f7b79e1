-- Returns the defaults of a task, a row for each.
select e.key, e.value::text as value
from trax.task t
cross join lateral jsonb_each(to_jsonb(t) - array['created_at', 'updated_at', 'applied']) as e (key, value)
where t.name = $name
