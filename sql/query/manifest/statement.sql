-- Returns the statement of a manifest, its input as it is stored, and the role that runs it.
select m.input operator(pg_catalog.->>) 'command' as command, m.input, m.run_as
from trax.manifest m
where m.name operator(pg_catalog.=) $name
    and m.run_as is not null
