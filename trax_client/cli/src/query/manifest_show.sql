-- A manifest as JSON: its definition, its state, its parents and children, and its SQL statement,
-- if any. $1 name.
select
    to_jsonb(m)
    || (to_jsonb(s) - array['group_name'])
    || jsonb_build_object(
        'sql', case when m.run_as is not null then m.input -> 'command' end,
        'depends_on',
        array(
            select p.name
            from trax.manifest_dependency d
            join trax.manifest p on p.manifest_id = d.parent_id
            where d.child_id = m.manifest_id
            order by p.name
        ),
        'dependents',
        array(
            select c.name
            from trax.manifest_dependency d
            join trax.manifest c on c.manifest_id = d.child_id
            where d.parent_id = m.manifest_id
            order by c.name
        )
    )
from trax.manifest m
join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.name = $1
