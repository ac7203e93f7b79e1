select t.target::text, pg_catalog.current_database()::text
from trax_relay.target t
