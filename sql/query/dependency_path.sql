-- A chain of edges from a manifest up to one of its would-be children, as names. $1 from (would-be parents), $2 to
with recursive chain as (
    select p.manifest_id, array[p.manifest_id] as path
    from unnest($1) as p (manifest_id)
    union all
    select d.parent_id, c.path || d.parent_id
    from chain c
    join trax.manifest_dependency d on d.child_id = c.manifest_id
    where c.manifest_id <> $2
        and d.parent_id <> all (c.path)
)
select array(
    select m.name
    from unnest(c.path) with ordinality as p (manifest_id, position)
    join trax.manifest m on m.manifest_id = p.manifest_id
    order by p.position
)
from chain c
where c.manifest_id = $2
limit 1
