-- Returns whether a manifest depends on others.
select exists (
    select
    from trax.manifest_dependency d
    where d.child_id = (select m.manifest_id from trax.manifest m where m.name = $name)
)
