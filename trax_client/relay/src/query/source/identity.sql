select r.source::text, pg_catalog.current_database()::text
from trax_outbox.relay r
