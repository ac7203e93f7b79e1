-- With which zone data next runs were computed.
select max(i.zone_data)
from trax.instance i
