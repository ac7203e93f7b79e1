update trax_outbox.result
set state = $2, output = $3::jsonb, error = $4, finished_at = $5::timestamptz
where job_id operator(pg_catalog.=) $1
    and state is null
