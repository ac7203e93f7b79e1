-- Stored defaults of tasks as JSON, ordered by name.
select to_jsonb(t)
from trax.task t
order by t.name
