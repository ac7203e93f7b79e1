-- Grants a place whose token has expired, unless its holder is just extending it.
-- $1 name, $2 slot, $3 limit, $4 holder, $5 now, $6 expires at
update trax.concurrency_token t
set
    max_holders = $3,
    token = gen_random_uuid(),
    holder = $4,
    acquired_at = $5,
    expires_at = $6
where t.ctid = any (array(
    select e.ctid
    from trax.concurrency_token e
    where e.name = $1
        and e.slot = $2
        and e.expires_at <= $5
    for update skip locked
))
returning slot, token, expires_at
