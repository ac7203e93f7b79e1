-- Returns the fingerprint of the zone data with which next runs were computed.
select max(i.zone_data)
from trax.instance i
