-- Records an act of the caller; the role and the time are the defaults of their columns. $name is
-- null for this database.
insert into trax.audit (action, kind, name, note)
values ($action, $kind, coalesce($name, pg_catalog.current_database()), $note)
