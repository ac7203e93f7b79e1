select e.key::text
from trax_outbox.entry e
where e.id operator(pg_catalog.=) any ($1)
