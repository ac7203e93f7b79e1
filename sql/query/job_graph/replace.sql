-- Puts a job into the place that another has in its graphs.
with replaced as (
    update trax.graph_job g
    set replaced_by = $job_id
    where g.job_id = $replaced_job_id
        and g.replaced_by is null
    returning g.graph_id, g.condition, g.name, g.needs
)
insert into trax.graph_job (job_id, graph_id, condition, name, needs)
select $job_id, r.graph_id, r.condition, r.name, r.needs
from replaced r
