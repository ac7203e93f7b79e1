-- Returns the manifest of a dead letter.
select d.manifest_id
from trax.dead_letter d
where d.id = $id
