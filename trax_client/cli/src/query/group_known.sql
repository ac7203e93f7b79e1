-- The names that are groups: those with settings, a manifest or a job, waiting, running or in
-- history. $1 names.
select n.name
from unnest($1) n (name)
where exists (select from trax.manifest_group g where g.name = n.name)
    or exists (select from trax.manifest m where m.group_name = n.name)
    or exists (select from trax.lease l where l.group_name = n.name)
    or exists (select from trax.work_queue q where q.group_name = n.name)
    or exists (select from trax.dead_letter d where d.group_name = n.name)
    or exists (select from trax.run r where r.group_name = n.name)
