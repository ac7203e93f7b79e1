-- Puts leases that were extended by a clock that was ahead back to one length from now; reads
-- $at_most leases, those with the latest reap_at after $after.
update trax.lease l
set extended_at = $now,
    lease_expires_at = $now + p.length,
    timeout_at = p.timeout_at,
    reap_at = least($now + p.length, p.timeout_at)
from (
    select
        o.job_id,
        greatest(o.lease_expires_at - coalesce(o.extended_at, o.started_at), interval '0') as length,
        least(
            o.timeout_at,
            $now + case when o.timed_out then interval '0' else coalesce(o.timeout, $default_timeout) end
        ) as timeout_at
    from trax.lease o
    where o.job_id = any (array(
        select f.job_id
        from (
            select a.job_id, coalesce(a.extended_at, a.started_at) as extended_at, a.lease_expires_at
            from trax.lease a
            where a.reap_at > $after
            order by a.reap_at desc
            limit $at_most
        ) f
        where f.extended_at > $latest
            and f.extended_at - $latest > f.lease_expires_at - f.extended_at
    ))
        and coalesce(o.extended_at, o.started_at) > $latest
        and coalesce(o.extended_at, o.started_at) - $latest
            > o.lease_expires_at - coalesce(o.extended_at, o.started_at)
    for update skip locked
) p
where l.job_id = p.job_id
