-- Returns names of rates.
select r.name
from trax.rate r
order by r.name
limit 1000
