insert into trax_relay.source as s (source, name)
values ($1::uuid, $2)
on conflict (source) do update
set epoch = s.epoch operator(pg_catalog.+) 1, since = pg_catalog.clock_timestamp(), name = excluded.name
returning s.epoch
