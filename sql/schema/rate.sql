-- rate: how much of something may start in a time. How far each key of a rate is used is in shared
-- memory (trax_pg/src/memory/rate.rs): a start writes no row.

create table trax.rate (
    name text collate "C" not null,
    allowed int not null,
    period interval not null,
    burst int,
    created_at timestamptz not null,
    changed_at timestamptz not null,
    applied boolean not null default false,
    source text collate "C",
    constraint rate_pkey primary key (name),
    constraint rate_name_length check (pg_catalog.octet_length(name) between 1 and 255),
    constraint rate_allowed_positive check (allowed > 0),
    constraint rate_period_range check (period > interval '0' and period <= interval '3660 days'),
    constraint rate_burst_positive check (burst > 0)
);

comment on table trax.rate is 'Rates: how much may start in a time, as trax.configure_rate() was told.';
comment on column trax.rate.name is 'The rate, 1 to 255 bytes.';
comment on column trax.rate.allowed is 'How much may start in each period, of each key.';
comment on column trax.rate.period is 'The period.';
comment on column trax.rate.burst is 'How much may start at once after a pause; null is as much as allowed.';
comment on column trax.rate.created_at is 'When the rate was first configured.';
comment on column trax.rate.changed_at is 'When it was last changed: keys that were in use then count as just used up.';
comment on column trax.rate.applied is 'True: created by trax.apply(), which may prune it.';
comment on column trax.rate.source is 'Whose documents say what it is: the source given to trax.apply(), which alone may change and prune it by document.';

create table trax.rate_closure (
    rate text collate "C" not null,
    key text collate "C" not null default '',
    closed_until timestamptz not null,
    constraint rate_closure_pkey primary key (rate, key)
);

comment on table trax.rate_closure is 'Rates that trax.close_rate() has closed. A row whose time is over means nothing and is removed by the cycle.';
comment on column trax.rate_closure.rate is 'The rate.';
comment on column trax.rate_closure.key is 'The key that is closed; empty for the whole rate.';
comment on column trax.rate_closure.closed_until is 'Nothing of it starts before.';

select pg_catalog.pg_extension_config_dump('trax.rate', '');
select pg_catalog.pg_extension_config_dump('trax.rate_closure', '');
