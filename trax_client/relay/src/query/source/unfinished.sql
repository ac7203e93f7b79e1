select r.id, r.job_id
from trax_outbox.result r
where r.state is null
    and r.target operator(pg_catalog.=) $2::uuid
    and r.id operator(pg_catalog.>) $1
order by r.id
limit 1000
