-- Returns the ids of manifests, null where a name is unknown, in the order of the names.
select n.name, m.manifest_id
from unnest($names) with ordinality as n (name, position)
left join trax.manifest m on m.name = n.name
order by n.position
