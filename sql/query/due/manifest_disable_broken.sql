-- Disables a manifest that cannot be evaluated.
update trax.manifest m
set enabled = false, disabled_reason = $reason, updated_at = $now
where m.ctid = any (array(
    -- A definition that another session is changing is left alone: the change may repair it.
    select b.ctid
    from trax.manifest b
    where b.manifest_id = $manifest_id
    for update skip locked
))
