-- Returns the first group, manifest, rate or task of these names that belongs to another source.
select n.kind, n.name, n.source
from (
    select 'group' as kind, g.name, g.source
    from trax.manifest_group g
    where g.name = any ($groups)
        and g.source <> $source
    union all
    select 'manifest', m.name, m.source
    from trax.manifest m
    where m.name = any ($manifests)
        and m.source <> $source
    union all
    select 'rate', r.name, r.source
    from trax.rate r
    where r.name = any ($rates)
        and r.source <> $source
    union all
    select 'task', t.name, t.source
    from trax.task t
    where t.name = any ($tasks)
        and t.source <> $source
) n
order by n.kind, n.name
limit 1
