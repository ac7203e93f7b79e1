-- Deletes graphs, of those after $after that were queued before $before, none of whose jobs lives
-- or is in the history, and which no other transaction has locked. Returns the last graph read.
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
), free as materialized (
    select g.ctid as place, g.graph_id
    from trax.graph g
    where g.graph_id = any (array(select o.graph_id from over o))
    for update skip locked
), jobs as (
    delete from trax.graph_job m
    where m.graph_id = any (array(select f.graph_id from free f))
), graphs as (
    delete from trax.graph g
    where g.ctid = any (array(select f.place from free f))
)
select max(l.graph_id)
from looked l
