-- Concurrency tokens: a semaphore for any program.

create view trax.concurrency_limit as
select
    u.name,
    coalesce(
        (
            select w.max_holders
            from trax.concurrency_waiter w
            where w.name operator(pg_catalog.=) u.name
            order by w.waiter_id desc
            limit 1
        ),
        (
            select t.max_holders
            from trax.concurrency_token t
            where t.name operator(pg_catalog.=) u.name
            order by t.acquired_at desc, t.slot
            limit 1
        )
    ) as max_holders,
    (
        select pg_catalog.count(*)
        from trax.concurrency_token t
        where t.name operator(pg_catalog.=) u.name
            and t.expires_at operator(pg_catalog.>) pg_catalog.clock_timestamp()
    ) as held,
    (
        select pg_catalog.count(*)
        from trax.concurrency_waiter w
        where w.name operator(pg_catalog.=) u.name
    ) as waiting
from (
    select t.name
    from trax.concurrency_token t
    union
    select w.name
    from trax.concurrency_waiter w
) u;
comment on view trax.concurrency_limit is 'The names that are held or waited for.';
comment on column trax.concurrency_limit.name is 'What is limited.';
comment on column trax.concurrency_limit.max_holders is 'How many may hold it at once, as of a recent call.';
comment on column trax.concurrency_limit.held is 'How many hold it.';
comment on column trax.concurrency_limit.waiting is 'How many wait for it.';

create function trax.acquire_token(
    name text,
    holder text,
    max_holders int,
    ttl interval
)
returns table (
    slot int,
    token uuid,
    expires_at timestamptz
)
language c volatile parallel unsafe security definer
rows 1
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_acquire_token';
comment on function trax.acquire_token(text, text, int, interval) is
    'Takes the lowest free of max_holders slots (1 to 1000) of a name for ttl; returns no row when all are held, or needed by callers of trax.await_token. The max_holders of the last call counts. Commit at once.';

-- Neither security definer nor with settings of its own: either would make the call atomic and keep
-- it from committing. The call takes the rights of its owner and a fixed search_path by itself.
create procedure trax.await_token(
    name text,
    holder text,
    max_holders int,
    ttl interval,
    wait interval,
    out slot int,
    out token uuid,
    out expires_at timestamptz
)
language c
as 'MODULE_PATHNAME', 'trax_await_token';
comment on procedure trax.await_token(text, text, int, interval, interval) is
    'Like trax.acquire_token, but waits for its turn, first come, first served, and commits by itself; returns nulls when the time is up. Refused inside a transaction block.';

create function trax.extend_token(
    name text,
    token uuid,
    ttl interval
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_extend_token';
comment on function trax.extend_token(text, uuid, interval) is
    'Extends a token to ttl from now; returns false when it is lost or expired. In one transaction with a write, no one else gets the slot before the commit.';

create function trax.release_token(
    name text,
    token uuid
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_release_token';
comment on function trax.release_token(text, uuid) is
    'Releases a token; returns false when it was lost or released before.';
