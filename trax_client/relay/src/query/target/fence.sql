select
from trax_relay.source s
where s.source operator(pg_catalog.=) $1::uuid
    and s.epoch operator(pg_catalog.=) $2
for update
