-- Grants a place whose token has expired by $over_by, unless its holder is just extending it.
update trax.concurrency_token t
set
    max_holders = $max_holders,
    token = gen_random_uuid(),
    holder = $holder,
    acquired_at = $now,
    extended_at = $now,
    expires_at = $expires_at
where t.ctid = any (array(
    select e.ctid
    from trax.concurrency_token e
    where e.name = $name
        and e.slot = $slot
        and e.expires_at <= $over_by
    for update skip locked
))
returning slot, token, expires_at
