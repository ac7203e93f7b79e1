-- The outboxes whose jobs arrive here, and the progress of their relays.
select
    s.source::text as outbox,
    s.name,
    s.waiting,
    s.oldest_seconds,
    s.refused,
    s.trouble,
    extract(epoch from s.reported_at)::double precision as reported_at,
    extract(epoch from clock_timestamp() - s.reported_at)::double precision as silent_seconds
from trax_relay.source s
order by s.name, s.source
limit 1000
