with gone as (
    delete from trax_outbox.entry e
    where e.id operator(pg_catalog.=) $1
        and e.key operator(pg_catalog.=) $2::uuid
    returning e.id, e.target, pg_catalog.to_jsonb(e) as entry
)
insert into trax_outbox.refused (id, sqlstate, error, detail, hint, entry, target)
select g.id, $3, $4, $5, $6, g.entry, g.target
from gone g
on conflict (id) do update
set (refused_at, sqlstate, error, detail, hint, entry, target) = (
    pg_catalog.clock_timestamp(), excluded.sqlstate, excluded.error, excluded.detail, excluded.hint, excluded.entry,
    excluded.target
)
