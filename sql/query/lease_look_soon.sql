-- Has the reaper look as soon as a deadline that was changed by hand; what has run out by then was ended by hand, and has no
-- length that a grace could give it again. $1 the default timeout
update trax.lease l
set timeout_at = least(l.timeout_at, l.started_at + coalesce(l.timeout, $1)),
    reap_at = least(l.lease_expires_at, l.timeout_at, l.started_at + coalesce(l.timeout, $1)),
    extended_at = case when l.lease_expires_at <= clock_timestamp() then l.lease_expires_at else l.extended_at end
where l.reap_at > least(l.lease_expires_at, l.timeout_at, l.started_at + coalesce(l.timeout, $1))
    or (l.lease_expires_at <= clock_timestamp() and l.extended_at < l.lease_expires_at)
