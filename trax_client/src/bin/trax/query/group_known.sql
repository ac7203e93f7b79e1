-- Those of some names that are groups: with settings, a manifest or a job that was once enqueued. $1 names
select n.name
from unnest($1) n (name)
where exists (select from trax.manifest_group g where g.name = n.name)
    or exists (select from trax.lane l where l.group_name = n.name)
    or exists (select from trax.manifest m where m.group_name = n.name)
