-- The names of tokens that are held or waited for. $1 limit.
select t.name
from trax.concurrency_token t
where t.expires_at > clock_timestamp()
union
select w.name
from trax.concurrency_waiter w
order by 1
limit $1
