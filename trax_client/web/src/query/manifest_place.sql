-- Whether a manifest is here. $1 its name.
select true as lives, pg_catalog.clock_timestamp() as since
from trax.manifest m
where m.name = $1
