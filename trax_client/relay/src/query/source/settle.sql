with gone as (
    delete from trax_outbox.entry e
    using unnest($1, $2::uuid[], $3) c (id, key, job_id)
    where e.id operator(pg_catalog.=) c.id
        and e.key operator(pg_catalog.=) c.key
    returning e.id, e.task, c.job_id, e.target
)
insert into trax_outbox.result (id, job_id, task, target)
select g.id, g.job_id, g.task, g.target
from gone g
where $4
on conflict (id) do nothing
