-- When the reaper has to look at the first lease from a time on. $1 the time
select l.reap_at
from trax.lease l
where l.reap_at >= $1
order by l.reap_at
limit 1
