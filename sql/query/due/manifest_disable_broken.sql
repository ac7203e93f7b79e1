-- Switches off a manifest that cannot be evaluated.
update trax.manifest m
set enabled = false, disabled_reason = $reason, updated_at = $now
where m.ctid = any (array(
    -- A definition that somebody is changing is left alone: it may be repaired.
    select b.ctid
    from trax.manifest b
    where b.manifest_id = $manifest_id
    for update skip locked
))
