-- The shards on which a group has settings, according to the router. $1 group.
select s.number
from trax_router.shards_of_settings($1) s (number)
order by s.number
