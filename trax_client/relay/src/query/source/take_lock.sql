-- Fails where there is no outbox, before the lock is taken.
select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('trax_outbox ' operator(pg_catalog.||) r.source::text, 0))
from trax_outbox.relay r
