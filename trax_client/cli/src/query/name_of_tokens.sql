-- The names that somebody holds a token of, or waits for. $1 at most.
select t.name
from trax.concurrency_token t
where t.expires_at > clock_timestamp()
union
select w.name
from trax.concurrency_waiter w
order by 1
limit $1
