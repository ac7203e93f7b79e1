-- Returns whether a job is that of a batch; no row when it is of no graph.
select g.is_batch
from trax.graph g
where g.graph_id = $graph_id
