-- The shards on which a group has its settings, as the router knows. $1 the group.
select s.number
from trax_router.shards_of_settings($1) s (number)
order by s.number
