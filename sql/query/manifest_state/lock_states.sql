-- Locks the states of manifests, in ascending order. $1 manifests
select s.manifest_id
from trax.manifest_state s
where s.manifest_id = any ($1)
order by s.manifest_id
for update
