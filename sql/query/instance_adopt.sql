-- Makes these tables this server's and this database's own. $1 system identifier, $2 database, $3 now
with foreign_places as (
    delete from trax.instance i
    where i.system_identifier <> $1
        or i.database_oid <> $2
)
insert into trax.instance (system_identifier, database_oid, adopted_at)
values ($1, $2, $3)
on conflict do nothing
