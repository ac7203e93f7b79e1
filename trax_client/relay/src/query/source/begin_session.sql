-- Makes an abandoned session release its lock; older servers support fewer of these settings. Sets
-- formats for times and intervals that the target can read, and the reverse. The target of a row
-- must survive a crash, as the row could otherwise be carried to another one.
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
