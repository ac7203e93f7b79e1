-- Returns the names of manifests, in the order of their ids in the array.
select m.name
from unnest($manifest_ids) with ordinality as i (manifest_id, position)
join trax.manifest m on m.manifest_id = i.manifest_id
order by i.position
