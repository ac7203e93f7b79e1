-- Notes with which zone data next runs are computed. $1 fingerprint
update trax.instance i
set zone_data = $1
