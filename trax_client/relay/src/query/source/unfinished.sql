select r.id, r.job_id
from trax_outbox.result r
where r.state is null
    and r.id operator(pg_catalog.>) $1
order by r.id
limit 1000
