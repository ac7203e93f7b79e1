-- A manifest of this name that was there at a time: one that its group took to another shard keeps
-- when it was made. $1 the name, $2 the time.
select m.name
from trax.manifest m
where m.name = $1
    and m.created_at <= $2::timestamptz
