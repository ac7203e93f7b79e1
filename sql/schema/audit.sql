-- audit: the acts of operators.

create table trax.audit (
    id bigint generated always as identity,
    at timestamptz not null default pg_catalog.clock_timestamp(),
    role text collate "C" not null default case pg_catalog.current_setting('role')
        when 'none' then session_user::text
        else pg_catalog.current_setting('role')
    end,
    program text collate "C" not null default pg_catalog."left"(
        coalesce(
            nullif(pg_catalog.current_setting('trax.program', true), ''),
            pg_catalog.current_setting('application_name')
        ),
        1000
    ),
    action text collate "C" not null,
    kind text collate "C" not null,
    name text collate "C" not null,
    note text,
    -- The restored rows of a dump do not collide with existing rows: their times differ.
    constraint audit_pkey primary key (at, id)
);

comment on table trax.audit is 'Acts of operators, each written in the transaction of the act. Kept for trax.audit_retention.';
comment on column trax.audit.id is 'The order of what was written at the same time.';
comment on column trax.audit.at is 'When, by the server''s clock.';
comment on column trax.audit.role is 'Who: the role that was set, or else the one that connected.';
comment on column trax.audit.program is 'Who acted, as the session says it: trax.program, or else its application_name.';
comment on column trax.audit.action is 'What was done: acknowledge, adopt, believe_clock, cancel, change, close, configure, disable, drop, enable, fork, grant, move, open, pause, queue_again, requeue, resume, revoke, run_now, schedule, set_shard, trigger or unschedule.';
comment on column trax.audit.kind is 'To what: a dead_letter, group, job, manifest, rate, role, task or the scheduler.';
comment on column trax.audit.name is 'Which: its name or its id; for the scheduler the database.';
comment on column trax.audit.note is 'The reason or note that was passed, or what changed.';

select pg_catalog.pg_extension_config_dump('trax.audit', '');
select pg_catalog.pg_extension_config_dump('trax.audit_id_seq', '');
