-- Returns the user's settings of a manifest, a row for each column.
select e.key, e.value::text as value
from trax.manifest m
cross join lateral jsonb_each(
    to_jsonb(m)
    - array['manifest_id', 'created_at', 'updated_at', 'applied', 'disabled_reason']
    || jsonb_build_object(
        'depends_on',
        array(
            select p.name
            from trax.manifest_dependency d
            join trax.manifest p on p.manifest_id = d.parent_id
            where d.child_id = m.manifest_id
            order by p.name
        )
    )
) as e (key, value)
where m.name = $name
