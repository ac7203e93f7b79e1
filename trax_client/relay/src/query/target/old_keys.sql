select c.id, c.key::text, c.carried_at::text
from trax_relay.carried c
where c.source operator(pg_catalog.=) $1::uuid
    and c.carried_at operator(pg_catalog.<) (pg_catalog.now() operator(pg_catalog.-) interval '1 hour')
    and (c.carried_at, c.key) operator(pg_catalog.>) ($2::timestamptz, $3::uuid)
order by c.carried_at, c.key
limit 10000
