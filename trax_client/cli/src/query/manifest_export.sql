-- Stored manifests as JSON, ordered by name. For a SQL manifest the statement replaces task and
-- input. $1 names, $2 group.
select
    to_jsonb(m) - case when m.run_as is null then '{}' else array['task', 'input'] end
    || case when m.run_as is null then '{}' else jsonb_build_object('sql', m.input -> 'command') end
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
from trax.manifest m
where ($1::text[] is null or m.name = any ($1))
    and ($2::text is null or m.group_name = $2)
order by m.name
