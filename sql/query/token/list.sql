-- Returns the stored tokens of a name, including expired ones.
select t.slot, t.expires_at
from trax.concurrency_token t
where t.name = $name
order by t.slot
