-- The manifest of a dead letter. $1 id
select d.manifest_id
from trax.dead_letter d
where d.id = $1
