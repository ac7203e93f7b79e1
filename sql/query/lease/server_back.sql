-- Returns when this server last began to take writes: with its start, the end of a crash of any
-- process and a promotion another walwriter begins.
select pg_catalog.max(a.backend_start)
from pg_catalog.pg_stat_get_activity(null) a
where a.backend_type operator(pg_catalog.=) 'walwriter'
