-- Extends a token that has not expired by $over_by, and returns whether it now ends earlier.
update trax.concurrency_token t
set
    extended_at = $now,
    expires_at = $expires_at
from (
    select h.slot, h.expires_at
    from trax.concurrency_token h
    where h.name = $name
        and h.token = $token
        and h.expires_at > $over_by
    for update
) o
where t.name = $name
    and t.slot = o.slot
returning o.expires_at > $expires_at
