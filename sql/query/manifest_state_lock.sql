-- Locks the state of a manifest. $1 manifest
select s.manifest_id
from trax.manifest_state s
where s.manifest_id = $1
for update
