-- Sets whose success a manifest waits for; edges that stay keep what they know. $1 child, $2
-- parents
with gone as (
    delete from trax.manifest_dependency d
    where d.child_id = $1
        and d.parent_id <> all ($2)
)
insert into trax.manifest_dependency (child_id, parent_id)
select $1, p.parent_id
from unnest($2) as p (parent_id)
on conflict do nothing
