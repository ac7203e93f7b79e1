update trax_outbox.result r
set state = e.state, output = e.output::jsonb, error = e.error, finished_at = e.finished_at::timestamptz
from unnest($1, $2, $3, $4, $5) e (id, state, output, error, finished_at)
where r.id operator(pg_catalog.=) e.id
    and r.state is null
