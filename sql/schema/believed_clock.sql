-- believed_clock: how far the clock of this server is believed. Until a clock that jumped has held,
-- nothing is dropped, deleted or timed out because of it.

-- Not registered with pg_extension_config_dump: the clock of another server does not matter here.
create table trax.believed_clock (
    one_row boolean not null default true,
    shown_at timestamptz not null,
    believed_at timestamptz not null,
    uptime bigint not null,
    boot text not null,
    constraint believed_clock_pkey primary key (one_row),
    constraint believed_clock_one_row check (one_row),
    constraint believed_clock_is_finite check (pg_catalog.isfinite(shown_at) and pg_catalog.isfinite(believed_at))
);

comment on table trax.believed_clock is
    'How far the clock of this server is believed: where shown_at and believed_at differ, it has jumped. The cycle writes it.';
comment on column trax.believed_clock.one_row is 'There is one row at most.';
comment on column trax.believed_clock.shown_at is 'What the clock showed when this was recorded; since a jump, when that was first seen.';
comment on column trax.believed_clock.believed_at is 'The time that was believed at that moment.';
comment on column trax.believed_clock.uptime is 'How long the machine had run at that moment, in microseconds.';
comment on column trax.believed_clock.boot is 'The start of the machine that this counts from.';
