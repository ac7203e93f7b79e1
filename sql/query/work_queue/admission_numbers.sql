-- Returns the first and the last number of the admitted jobs of a group; no row when there is none.
select f.number as first, l.number as last
from (
    select a.number
    from trax.admission a
    where a.group_name = $group
    order by a.number
    limit 1
) f
cross join (
    select a.number
    from trax.admission a
    where a.group_name = $group
    order by a.number desc
    limit 1
) l
