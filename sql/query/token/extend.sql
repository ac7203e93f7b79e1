-- Extends a token that is held, and says whether it now ends earlier. $1 name, $2 token, $3 now, $4
-- expires at
update trax.concurrency_token t
set expires_at = $4
from (
    select h.slot, h.expires_at
    from trax.concurrency_token h
    where h.name = $1
        and h.token = $2
        and h.expires_at > $3
    for update
) o
where t.name = $1
    and t.slot = o.slot
returning o.expires_at > $4
