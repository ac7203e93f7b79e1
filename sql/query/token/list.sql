-- The tokens of a name that are in its table, those that have expired too. $1 name
select t.slot, t.expires_at
from trax.concurrency_token t
where t.name = $1
order by t.slot
