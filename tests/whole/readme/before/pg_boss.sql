-- As pg-boss 10 and later make them: the columns that the statements use or must fill.
create schema pgboss;
create type pgboss.job_state as enum ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
create table pgboss.job (
    id uuid not null default gen_random_uuid(),
    name text not null,
    priority int not null default 0,
    data jsonb,
    state pgboss.job_state not null default 'created',
    retry_limit int not null default 2,
    retry_count int not null default 0,
    retry_delay int not null default 0,
    retry_backoff boolean not null default false,
    singleton_key text,
    start_after timestamptz not null default now(),
    created_on timestamptz not null default now(),
    started_on timestamptz,
    completed_on timestamptz,
    dead_letter text,
    policy text
) partition by list (name);
create table pgboss.job_common partition of pgboss.job default;
create table pgboss.schedule (
    name text primary key, cron text not null, timezone text, data jsonb, options jsonb,
    created_on timestamptz not null default now(), updated_on timestamptz not null default now());
insert into pgboss.job (name, priority, data, state, retry_count, retry_delay, singleton_key, start_after) values
    ('invoice', 2, '{"n": 1}', 'created', 0, 0, null, now()),
    ('invoice', 0, null, 'retry', 1, 30, 'a', '2099-01-01 00:00 UTC'),
    ('invoice', 0, '{"n": 3}', 'active', 0, 0, null, now());
insert into pgboss.schedule (name, cron, timezone, data) values ('cleanup', '0 3 * * *', 'Europe/Berlin', '{"days": 7}');
