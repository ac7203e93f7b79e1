-- Notes with which zone data next runs are computed.
update trax.instance i
set zone_data = $fingerprint
