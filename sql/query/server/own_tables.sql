-- The tables whose triggers, constraints, indexes, defaults, rules and policies run when ours are
-- written.
with recursive family (oid) as (
    select c.oid
    from pg_class c
    where c.relnamespace = 'trax'::regnamespace
        and c.relkind in ('r', 'p')
    union
    -- Partitions may be in another schema.
    select i.inhrelid
    from family f
    join pg_inherits i on i.inhparent = f.oid
)
select f.oid
from family f
