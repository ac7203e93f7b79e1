-- The tasks and groups to which a role is limited at a level. $1 role, $2 level.
select s.tasks, s.groups
from trax.access_scope s
where s.role = $1
    and s.level = $2
limit 1
