-- Returns the jobs of a graph.
select g.name, g.job_id
from trax.graph_job g
where g.graph_id = $graph_id
    and g.replaced_by is null
order by g.job_id
