-- The rows that this transaction wrote to trax.audit.
select a.action, a.kind, a.name, a.note
from trax.audit a
where a.at >= pg_catalog.transaction_timestamp()
    and a.xmin = pg_catalog.pg_current_xact_id()::xid
order by a.id
limit 100
