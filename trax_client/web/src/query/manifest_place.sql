-- Whether a manifest exists here. $1 name.
select true as lives, pg_catalog.clock_timestamp() as since
from trax.manifest m
where m.name = $1
