-- Enables a manifest; the answer names the dead letter that stops its schedule all the same. $1
-- name.
select coalesce(trax.enable_manifest(name => $1)::text, '') || coalesce(
    (
        select pg_catalog.format('enabled, but its schedule stands still until dead letter %s is requeued or acknowledged', d.id)
        from trax.manifest m
        join trax.dead_letter d on d.manifest_id = m.manifest_id
        where m.name = $1
            and m.on_dead_letter = 'stop'
            and d.status = 'awaiting_intervention'
    ),
    ''
)
