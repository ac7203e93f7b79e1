-- The holders of tokens, followed by the waiters in the order in which they are served. $1 limit.
select t.name, 'held' as state, t.slot, t.max_holders, t.holder, t.acquired_at as since, t.expires_at
from trax.concurrency_token t
where t.expires_at > pg_catalog.clock_timestamp()
union all
select
    w.name,
    'waiting',
    pg_catalog.row_number() over (partition by w.name order by w.waiter_id)::int,
    w.max_holders,
    w.holder,
    w.waiting_since,
    null
from trax.concurrency_waiter w
order by 1, 2, 3
limit $1
