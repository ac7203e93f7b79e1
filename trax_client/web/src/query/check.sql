-- Violated invariants, as text.
select pg_catalog.left(c::text, 1000)
from trax.check() c
limit 100
