-- The first jobs of the graph or batch of a job, and how many it has. $1 job id, $2 limit.
select g.name, g.job_id, g.task, g.state, g.needs, g.condition, g.waits_for, g.error, count(*) over () as jobs
from trax.read_graph($1) g
order by g.job_id
limit $2
