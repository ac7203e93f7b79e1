-- How many jobs of a concurrency key are executed. $1 key
select count(*)
from trax.lease l
where l.concurrency_key = $1
