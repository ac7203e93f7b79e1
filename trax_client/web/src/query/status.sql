-- The state of trax in this database.
select s.item, s.value, s.healthy, s.hint
from trax.status() s
