-- Grants a place that has no row. $1 name, $2 slot, $3 limit, $4 holder, $5 now, $6 expires at
insert into trax.concurrency_token (name, slot, max_holders, token, holder, acquired_at, expires_at)
select $1, $2, $3, gen_random_uuid(), $4, $5, $6
where not exists (
    select
    from trax.concurrency_token t
    where t.name = $1
        and t.slot = $2
)
returning slot, token, expires_at
