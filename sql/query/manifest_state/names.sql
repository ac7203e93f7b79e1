-- The names of manifests, in the order of their ids' places. $1 manifests
select m.name
from unnest($1) with ordinality as i (manifest_id, position)
join trax.manifest m on m.manifest_id = i.manifest_id
order by i.position
