-- The relay reads times and intervals as text, and the source reads those that this session writes.
-- The server cancels a statement before the relay gives up on it, so that no session remains. A
-- lower limit, for example of the role, is kept.
select pg_catalog.set_config(s.name, s.value, false)
from (
    values
        ('datestyle', 'ISO'),
        ('intervalstyle', 'postgres')
) s (name, value)
union all
select pg_catalog.set_config(l.name, l.most, false)
from (
    values
        ('statement_timeout', $1),
        ('lock_timeout', $2)
) l (name, most)
where pg_catalog.current_setting(l.name)::interval operator(pg_catalog.=) interval '0'
    or pg_catalog.current_setting(l.name)::interval operator(pg_catalog.>) l.most::interval
