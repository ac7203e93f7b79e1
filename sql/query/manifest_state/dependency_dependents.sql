-- Returns the names of the manifests that depend on one.
select array(
    select m.name
    from trax.manifest_dependency d
    join trax.manifest m on m.manifest_id = d.child_id
    where d.parent_id = $parent_id
    order by m.name
)
