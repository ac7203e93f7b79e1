-- Records what the caller did; who and when are the defaults of the columns. $name is null for this
-- database.
insert into trax.audit (action, kind, name, note)
values ($action, $kind, coalesce($name, pg_catalog.current_database()), $note)
