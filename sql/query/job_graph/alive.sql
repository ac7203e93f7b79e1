-- Returns the graph that has a unique key, and whether one of its jobs waits or is executed.
select
    g.graph_id,
    exists (
        select
        from trax.graph_job m
        where m.graph_id = g.graph_id
            and (
                exists (select from trax.work_queue q where q.job_id = m.job_id offset 0)
                or exists (select from trax.lease l where l.job_id = m.job_id offset 0)
            )
        offset 0
    ) as is_alive
from trax.graph g
where g.unique_key = $key
