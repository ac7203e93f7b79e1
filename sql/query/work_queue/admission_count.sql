-- Returns how many jobs of a group are admitted.
select count(*)
from trax.admission a
where a.group_name = $group
