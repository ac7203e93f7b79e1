-- A session that nobody is behind any more lets go of its lock; older servers know less of it.
-- The target reads the times and intervals that this session writes, and the other way round.
-- Which target a row is for is there after a crash: it could be carried to another one.
select pg_catalog.set_config(s.name, v.value, false)
from (
    values
        ('idle_session_timeout', $1),
        ('idle_in_transaction_session_timeout', $1),
        ('tcp_keepalives_idle', '5'),
        ('tcp_keepalives_interval', '5'),
        ('tcp_keepalives_count', '3'),
        ('tcp_user_timeout', '15000'),
        ('synchronous_commit', 'on'),
        ('DateStyle', 'ISO'),
        ('IntervalStyle', 'postgres')
) v (name, value)
join pg_catalog.pg_settings s on s.name operator(pg_catalog.=) v.name
