-- Groups with settings, and groups without that manifests or live jobs use. $1 limit.
select n.name, exists (select from trax.manifest_group g where g.name = n.name) as is_configured
from (
    select g.name
    from trax.manifest_group g
    union
    select m.group_name
    from trax.manifest m
    union
    select l.group_name
    from trax.lane l
    union
    select l.group_name
    from trax.lease l
) n
order by n.name
limit $1
