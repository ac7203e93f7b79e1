-- A manifest of this name that existed at a time; a manifest that moved to another shard with its
-- group keeps its creation time. $1 name, $2 time.
select m.name
from trax.manifest m
where m.name = $1
    and m.created_at <= $2::timestamptz
