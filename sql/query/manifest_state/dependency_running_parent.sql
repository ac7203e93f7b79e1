-- Returns whether a declared parent of a manifest is being executed.
select
from trax.manifest_dependency d
where d.child_id = $child_id
    and exists (
        select
        from trax.lease l
        where l.manifest_id = d.parent_id
    )
limit 1
