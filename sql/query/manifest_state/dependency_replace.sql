-- Sets the parents of a manifest; remaining edges keep their state.
with gone as (
    delete from trax.manifest_dependency d
    where d.child_id = $child_id
        and d.parent_id <> all ($parent_ids)
)
insert into trax.manifest_dependency (child_id, parent_id)
select $child_id, p.parent_id
from unnest($parent_ids) as p (parent_id)
on conflict do nothing
