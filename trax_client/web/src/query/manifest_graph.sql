-- The graph around a manifest: up to three levels of parents and of children, at most twenty of
-- each, with those of their parents that are in the graph. $1 name, $2 limit.
with recursive root as materialized (
    select m.manifest_id
    from trax.manifest m
    where m.name = $1
),
up as (
    select r.manifest_id, 0 as depth
    from root r
    union
    select d.parent_id, u.depth - 1
    from up u
    cross join lateral (
        select d.parent_id
        from trax.manifest_dependency d
        where d.child_id = u.manifest_id
        order by d.parent_id
        limit 20
    ) d
    where u.depth > -3
),
down as (
    select r.manifest_id, 0 as depth
    from root r
    union
    select d.child_id, o.depth + 1
    from down o
    cross join lateral (
        select d.child_id
        from trax.manifest_dependency d
        where d.parent_id = o.manifest_id
        order by d.child_id
        limit 20
    ) d
    where o.depth < 3
),
node as materialized (
    select distinct on (n.manifest_id) n.manifest_id, n.depth
    from (
        select * from up
        union all
        select * from down
    ) n
    order by n.manifest_id, abs(n.depth)
),
shown as materialized (
    select n.manifest_id, n.depth, m.name, m.enabled
    from node n
    join trax.manifest m on m.manifest_id = n.manifest_id
    order by abs(n.depth), m.name
    limit $2
)
select
    n.name,
    n.depth,
    n.enabled,
    array(
        select p.name
        from trax.manifest_dependency d
        join shown p on p.manifest_id = d.parent_id
        where d.child_id = n.manifest_id
    ) as parents
from shown n
order by n.depth, n.name
