-- Switches off a manifest that cannot be evaluated. $1 manifest, $2 why, $3 now
update trax.manifest m
set enabled = false, disabled_reason = $2, updated_at = $3
where m.ctid = any (array(
    -- A definition that somebody is changing is left alone: it may be mended.
    select b.ctid
    from trax.manifest b
    where b.manifest_id = $1
    for update skip locked
))
