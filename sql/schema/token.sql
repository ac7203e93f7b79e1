-- token: the holders of the places of a name, and the sessions that wait for one. A free place has
-- no row, so that unused names cost nothing. The token of a job is its lease.

create table trax.concurrency_token (
    name text collate "C" not null,
    slot int not null,
    max_holders int not null,
    token uuid not null,
    holder text not null,
    acquired_at timestamptz not null,
    expires_at timestamptz not null,
    extended_at timestamptz not null default pg_catalog.clock_timestamp(),
    constraint concurrency_token_pkey primary key (name, slot),
    constraint concurrency_token_slot_within_limit check (slot between 1 and max_holders)
) with (fillfactor = 70);

create table trax.concurrency_waiter (
    waiter_id bigint generated always as identity,
    name text collate "C" not null,
    max_holders int not null,
    holder text not null,
    pid int not null,
    waiting_since timestamptz not null,
    constraint concurrency_waiter_pkey primary key (waiter_id),
    constraint concurrency_waiter_max_holders_positive check (max_holders > 0)
) with (fillfactor = 70);

create index concurrency_waiter_name on trax.concurrency_waiter (name, waiter_id);

comment on table trax.concurrency_token is 'The tokens that are held, a row for each: of trax.acquire_token and trax.await_token. One past expires_at is no longer held.';
comment on column trax.concurrency_token.name is 'What is limited.';
comment on column trax.concurrency_token.slot is 'Number of the slot, from 1; the lowest free one is taken.';
comment on column trax.concurrency_token.max_holders is 'How many could hold the name at once when it was granted.';
comment on column trax.concurrency_token.token is 'Fencing token of this grant.';
comment on column trax.concurrency_token.holder is 'Who holds it.';
comment on column trax.concurrency_token.acquired_at is 'When it was granted.';
comment on column trax.concurrency_token.extended_at is 'When it was granted or last extended.';
comment on column trax.concurrency_token.expires_at is 'When it is free again unless extended.';
comment on table trax.concurrency_waiter is 'The calls that wait in trax.await_token, a row for each. A row whose session no longer waits does not count and is removed by the next call that finds it, or by the cycle.';
comment on column trax.concurrency_waiter.waiter_id is 'Place in the queue: the lowest of a name is served first.';
comment on column trax.concurrency_waiter.name is 'What is limited.';
comment on column trax.concurrency_waiter.max_holders is 'How many may hold the name at once, as of the last call.';
comment on column trax.concurrency_waiter.holder is 'Who waits.';
comment on column trax.concurrency_waiter.pid is 'Process of the session that waits.';
comment on column trax.concurrency_waiter.waiting_since is 'Since when it waits.';

select pg_catalog.pg_extension_config_dump('trax.concurrency_token', '');
select pg_catalog.pg_extension_config_dump('trax.concurrency_waiter', '');
select pg_catalog.pg_extension_config_dump('trax.concurrency_waiter_waiter_id_seq', '');
