-- The last attempts of a manifest. $1 manifest id, $2 limit.
select r.job_id, r.attempt, r.state, r.started_at, r.finished_at, pg_catalog.left(r.error, 300) as error
from trax.run r
where r.manifest_id = $1
order by r.finished_at desc
limit $2
