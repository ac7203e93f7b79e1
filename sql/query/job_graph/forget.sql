-- Deletes graphs, of those after $after that were queued before $before, none of whose jobs lives
-- or is in the history. Returns the last graph read.
with looked as materialized (
    select g.graph_id
    from trax.graph g
    where g.graph_id > $after
        and g.queued_at < $before
    order by g.graph_id
    limit $at_most
), over as materialized (
    select l.graph_id
    from looked l
    where not exists (
        select
        from (
            select l.graph_id as job_id
            union all
            select m.job_id
            from trax.graph_job m
            where m.graph_id = l.graph_id
        ) m
        where exists (select from trax.work_queue q where q.job_id = m.job_id offset 0)
            or exists (select from trax.lease e where e.job_id = m.job_id offset 0)
            or exists (select from trax.run r where r.job_id = m.job_id offset 0)
        offset 0
    )
), jobs as (
    delete from trax.graph_job m
    where m.graph_id = any (array(select o.graph_id from over o))
), graphs as (
    delete from trax.graph g
    where g.graph_id = any (array(select o.graph_id from over o))
)
select max(l.graph_id)
from looked l
