-- limit: a limit of N is N token rows.

create table trax.concurrency_limit (
    limit_id bigint generated always as identity,
    kind text not null,
    name text collate "C" not null,
    max_holders int not null,
    constraint concurrency_limit_pkey primary key (limit_id),
    constraint concurrency_limit_name_key unique (kind, name),
    constraint concurrency_limit_kind_known check (kind in ('database', 'group', 'manifest', 'key', 'named')),
    constraint concurrency_limit_max_holders_not_negative check (max_holders >= 0)
);

create table trax.concurrency_token (
    limit_id bigint not null,
    slot int not null,
    token uuid,
    holder text,
    job_id bigint,
    acquired_at timestamptz,
    expires_at timestamptz,
    constraint concurrency_token_pkey primary key (limit_id, slot),
    constraint concurrency_token_slot_positive check (slot > 0)
) with (fillfactor = 70);

comment on table trax.concurrency_limit is 'Limits on how many may hold something at once: the database, a group, a manifest, a concurrency key, or a name of the user''s own.';
comment on column trax.concurrency_limit.limit_id is 'Identity of the limit.';
comment on column trax.concurrency_limit.kind is 'database, group, manifest, key or named.';
comment on column trax.concurrency_limit.name is 'What is limited.';
comment on column trax.concurrency_limit.max_holders is 'How many may hold it at once.';
comment on table trax.concurrency_token is 'The tokens of each limit, a row for each slot.';
comment on column trax.concurrency_token.limit_id is 'The limit.';
comment on column trax.concurrency_token.slot is 'Number of the slot, from 1.';
comment on column trax.concurrency_token.token is 'Fencing token of the holder; null while free.';
comment on column trax.concurrency_token.holder is 'Who holds it.';
comment on column trax.concurrency_token.job_id is 'The job that holds it.';
comment on column trax.concurrency_token.acquired_at is 'When it was taken.';
comment on column trax.concurrency_token.expires_at is 'When it is free again unless extended.';

select pg_catalog.pg_extension_config_dump('trax.concurrency_limit', '');
select pg_catalog.pg_extension_config_dump('trax.concurrency_limit_limit_id_seq', '');
select pg_catalog.pg_extension_config_dump('trax.concurrency_token', '');
