-- Returns the tokens of a name that are in its table, those that have expired too.
select t.slot, t.expires_at
from trax.concurrency_token t
where t.name = $name
order by t.slot
