-- Notifies listeners that work may exist.
select pg_notify('trax_work', '')
