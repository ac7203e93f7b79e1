-- Assigns these tables to this server and this database. Next runs are computed again, because the
-- zone data here may differ.
with places as (
    delete from trax.instance i
    returning
        i.system_identifier = $system_identifier and i.database_oid = $database_oid as is_here, i.paused_at,
        i.pause_reason
), mark as (
    insert into trax.adoption (system_identifier, database_oid, home)
    values ($system_identifier, $database_oid, $home)
    on conflict (one_row) do update
    set system_identifier = excluded.system_identifier, database_oid = excluded.database_oid, home = excluded.home
)
insert into trax.instance (system_identifier, database_oid, adopted_at, paused_at, pause_reason)
select $system_identifier, $database_oid, $now, min(p.paused_at), max(p.pause_reason)
from (
    select p.paused_at, p.pause_reason
    from places p
    where p.is_here
) p
