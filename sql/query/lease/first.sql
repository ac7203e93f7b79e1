-- Returns when the reaper has to look at the first lease from $begin on.
select l.reap_at
from trax.lease l
where l.reap_at >= $begin
order by l.reap_at
limit 1
