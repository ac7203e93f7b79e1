-- Whose tables these are, and whether they are paused. $1 system identifier, $2 database
select
    coalesce(bool_or(i.system_identifier = $1 and i.database_oid = $2), false) and count(*) = 1,
    coalesce(bool_or(i.paused_at is not null), false)
from trax.instance i
