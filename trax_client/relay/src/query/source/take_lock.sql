-- Fails where there is no outbox, before the lock is taken. A relay for each target.
select pg_catalog.pg_try_advisory_lock(
    pg_catalog.hashtextextended(pg_catalog.concat('trax_outbox ', r.source, ' ', $1), 0)
)
from trax_outbox.relay r
