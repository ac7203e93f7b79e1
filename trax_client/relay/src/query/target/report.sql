update trax_relay.source
set
    waiting = $3,
    oldest_seconds = $4,
    refused = $5,
    held = $6,
    trouble = $7,
    reported_at = pg_catalog.clock_timestamp()
where source operator(pg_catalog.=) $1::uuid
    and epoch operator(pg_catalog.=) $2
