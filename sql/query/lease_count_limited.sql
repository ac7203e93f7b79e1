-- Counts the leases of a group towards the limit it has from now on. $1 group
update trax.lease l
set limited = true
where l.group_name = $1
    and not l.limited
