-- Makes these tables this server's and this database's own. $1 system identifier, $2 database, $3
-- now, $4 home Whether the zone data here is that of before is not known: next runs are computed
-- anew.
with places as (
    delete from trax.instance i
    returning i.system_identifier = $1 and i.database_oid = $2 as is_here, i.paused_at, i.pause_reason
), mark as (
    insert into trax.adoption (system_identifier, database_oid, home)
    values ($1, $2, $4)
    on conflict (one_row) do update
    set system_identifier = excluded.system_identifier, database_oid = excluded.database_oid, home = excluded.home
)
insert into trax.instance (system_identifier, database_oid, adopted_at, paused_at, pause_reason)
select $1, $2, $3, min(p.paused_at), max(p.pause_reason)
from (
    select p.paused_at, p.pause_reason
    from places p
    where p.is_here
) p
