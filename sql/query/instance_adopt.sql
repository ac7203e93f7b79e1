-- Makes these tables this server's and this database's own. $1 system identifier, $2 database, $3 now, $4 home
-- Whether the zone data here is that of before is not known: next runs are computed anew.
with foreign_places as (
    delete from trax.instance i
    where i.system_identifier <> $1
        or i.database_oid <> $2
), mark as (
    insert into trax.adoption (system_identifier, database_oid, home)
    values ($1, $2, $4)
    on conflict (one_row) do update
    set system_identifier = excluded.system_identifier, database_oid = excluded.database_oid, home = excluded.home
)
insert into trax.instance (system_identifier, database_oid, adopted_at)
values ($1, $2, $3)
on conflict (system_identifier, database_oid) do update
set adopted_at = excluded.adopted_at, zone_data = null
