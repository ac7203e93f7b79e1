-- Puts leases that were extended by a clock that was ahead back to one length from now.
update trax.lease l
set extended_at = $now,
    lease_expires_at = $now + p.length,
    timeout_at = p.timeout_at,
    reap_at = null
from (
    select
        o.job_id,
        greatest(o.lease_expires_at - coalesce(o.extended_at, o.started_at), interval '0') as length,
        least(
            o.timeout_at,
            $now + case when o.timed_out then interval '0' else coalesce(o.timeout, $default_timeout) end
        ) as timeout_at
    from trax.lease o
    where o.job_id = any ($job_ids)
        and coalesce(o.extended_at, o.started_at) > $latest
        and coalesce(o.extended_at, o.started_at) - $latest
            > o.lease_expires_at - coalesce(o.extended_at, o.started_at)
    for update skip locked
) p
where l.job_id = p.job_id
