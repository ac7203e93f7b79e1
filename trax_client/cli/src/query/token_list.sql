-- The holders of tokens, followed by the waiters in the order in which they are served. $1 name.
select t.name, 'held' as state, t.slot, t.max_holders, t.holder, t.acquired_at as since, t.expires_at, null::int as pid
from trax.concurrency_token t
where t.expires_at > clock_timestamp()
    and ($1::text is null or t.name = $1)
union all
select
    w.name, 'waiting',
    row_number() over (partition by w.name order by w.waiter_id)::int,
    w.max_holders, w.holder, w.waiting_since, null, w.pid
from trax.concurrency_waiter w
where exists (select from pg_stat_activity a where a.pid = w.pid)
    and ($1::text is null or w.name = $1)
order by 1, 2, 3
