-- Returns when this server last began to accept writes: a new walwriter starts with the server,
-- after a crash of any process and with a promotion.
select pg_catalog.max(a.backend_start)
from pg_catalog.pg_stat_get_activity(null) a
where a.backend_type operator(pg_catalog.=) 'walwriter'
