select c.id, c.key::text
from trax_relay.carried c
where c.source operator(pg_catalog.=) $1::uuid
    and c.carried_at operator(pg_catalog.<) (pg_catalog.now() operator(pg_catalog.-) interval '1 hour')
order by c.carried_at
limit 100000
