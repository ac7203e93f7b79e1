-- What trax relay keeps in its target, a database with the extension.
--
--     psql -v ON_ERROR_STOP=1 --single-transaction -f relay.sql
--
-- The role of the relay needs the level producer, and these two tables:
--
--     select trax.grant_access('trax_relay', 'producer');
--     select trax_relay.grant_access('trax_relay');
--
-- trax metrics and trax doctor show how far the relays are, to a role with the level reader here:
--
--     select trax_relay.grant_access('someone', 'reader');
--
-- Running it again changes nothing but functions and comments, which become those of this file.

do $$
begin
    if exists (
        select from pg_catalog.pg_namespace n
        where n.nspname operator(pg_catalog.=) 'trax_relay'
            and not pg_catalog.pg_has_role(n.nspowner, 'USAGE')
    ) then
        raise exception using
            errcode = 'insufficient_privilege',
            message = 'schema "trax_relay" belongs to another role',
            hint = 'Run this file as the owner of the schema.';
    end if;
end
$$;

create schema if not exists trax_relay;
comment on schema trax_relay is 'What trax relay has carried here from outboxes.';

create table if not exists trax_relay.source (
    source uuid,
    epoch bigint not null default 1,
    since timestamptz not null default pg_catalog.clock_timestamp(),
    name text not null default '',
    waiting bigint not null default 0,
    oldest_seconds double precision not null default 0,
    refused bigint not null default 0,
    reported_at timestamptz not null default pg_catalog.clock_timestamp(),
    constraint source_pkey primary key (source)
);
comment on table trax_relay.source is 'The outboxes that rows are carried from; a relay locks the row of its outbox in each transaction.';
comment on column trax_relay.source.source is 'trax_outbox.relay.source of the outbox.';
comment on column trax_relay.source.epoch is 'The number of the relay that may carry now.';
comment on column trax_relay.source.since is 'When that relay began.';
comment on column trax_relay.source.name is 'The database of the outbox.';
comment on column trax_relay.source.waiting is 'How many rows waited to be carried, 100000 at most.';
comment on column trax_relay.source.oldest_seconds is 'How long the oldest of them had waited, by the clock of the outbox.';
comment on column trax_relay.source.refused is 'How many rows were in trax_outbox.refused, 100000 at most.';
comment on column trax_relay.source.reported_at is 'When the relay said so; it does each ten seconds, each minute while nothing changes.';

create table if not exists trax_relay.carried (
    key uuid,
    source uuid not null,
    id bigint not null,
    job_id bigint not null,
    carried_at timestamptz not null default pg_catalog.clock_timestamp(),
    constraint carried_pkey primary key (key)
);
create index if not exists carried_by_age on trax_relay.carried (source, carried_at);
comment on table trax_relay.carried is 'The rows that became jobs within the last hour, and those of before that their outbox still has.';
comment on column trax_relay.carried.key is 'trax_outbox.entry.key.';
comment on column trax_relay.carried.source is 'The outbox.';
comment on column trax_relay.carried.id is 'trax_outbox.entry.id.';
comment on column trax_relay.carried.job_id is 'The job.';
comment on column trax_relay.carried.carried_at is 'When it was enqueued.';

create or replace function trax_relay.grant_access(role regrole, level text default 'relay')
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if level is null or level not in ('relay', 'reader', 'none') then
        raise exception using
            errcode = 'invalid_parameter_value',
            message = format('level %s does not exist', coalesce(quote_literal(level), 'null')),
            detail = 'The levels are relay, reader and none.',
            hint = 'Specify one of: relay, reader, none.';
    end if;
    execute format('revoke all on all tables in schema trax_relay from %s', role);
    execute format('revoke all on schema trax_relay from %s', role);
    if level = 'none' then
        return;
    end if;
    execute format('grant usage on schema trax_relay to %s', role);
    execute format('grant select on trax_relay.source to %s', role);
    if level = 'relay' then
        execute format('grant insert, update on trax_relay.source to %s', role);
        execute format('grant select, insert, delete on trax_relay.carried to %s', role);
    end if;
end
$$;
comment on function trax_relay.grant_access(regrole, text) is
    'Sets what a role may do here: relay (what trax relay keeps), reader (see how far the relays are), none. For the owner of the schema.';

revoke all on schema trax_relay from public;
revoke all on all tables in schema trax_relay from public;
revoke all on all functions in schema trax_relay from public;
