-- Grants a place that has no row.
insert into trax.concurrency_token (name, slot, max_holders, token, holder, acquired_at, extended_at, expires_at)
select $name, $slot, $max_holders, gen_random_uuid(), $holder, $now, $now, $expires_at
where not exists (
    select
    from trax.concurrency_token t
    where t.name = $name
        and t.slot = $slot
)
returning slot, token, expires_at
