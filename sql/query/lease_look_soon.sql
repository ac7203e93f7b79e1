-- Has the reaper look as soon as a deadline that was changed by hand. $1 the default timeout
update trax.lease l
set timeout_at = least(l.timeout_at, l.started_at + coalesce(l.timeout, $1)),
    reap_at = least(l.lease_expires_at, l.timeout_at, l.started_at + coalesce(l.timeout, $1))
where l.reap_at > least(l.lease_expires_at, l.timeout_at, l.started_at + coalesce(l.timeout, $1))
