-- The sources of groups, manifests, rates and tasks that have one. $1 names.
select 'group' as kind, g.name, g.source
from trax.manifest_group g
where g.name = any ($1)
    and g.source is not null
union all
select 'manifest', m.name, m.source
from trax.manifest m
where m.name = any ($1)
    and m.source is not null
union all
select 'rate', r.name, r.source
from trax.rate r
where r.name = any ($1)
    and r.source is not null
union all
select 'task', t.name, t.source
from trax.task t
where t.name = any ($1)
    and t.source is not null
