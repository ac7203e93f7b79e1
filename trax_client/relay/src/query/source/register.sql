insert into trax_outbox.target as t (target, name)
values ($1::uuid, $2)
on conflict (target) do update
set name = excluded.name
where t.name operator(pg_catalog.<>) excluded.name
