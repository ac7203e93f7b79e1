-- Returns how many jobs a batch has.
select count(*)
from trax.graph_job g
where g.graph_id = $graph_id
    and g.replaced_by is null
