-- The tables whose triggers, constraints, indexes, defaults, rules and policies run when ours are written.
select t.relation
from trax.own_tables() t
