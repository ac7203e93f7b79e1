-- Rates: how much may start in a time.

create function trax.configure_rate(
    name text,
    allowed int,
    period interval,
    burst int default null
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_configure_rate';
comment on function trax.configure_rate(text, int, interval, int) is
    'Creates or changes a rate: of each of its keys, allowed may start in each period, and burst (by default allowed) at once after a pause.';

create function trax.drop_rate(
    name text
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_drop_rate';
comment on function trax.drop_rate(text) is
    'Removes a rate. Refused while a group or a job that waits or runs names it.';

create function trax.consume_rate(
    name text,
    key text default null,
    cost int default 1
)
returns table (
    granted boolean,
    retry_after interval
)
language c volatile parallel unsafe security definer
rows 1
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_consume_rate';
comment on function trax.consume_rate(text, text, int) is
    'Uses a rate, or a key of it, for something that is no job. Returns true when it may start now, or false and how long until it may. Writes nothing and never waits: false while the rate is being configured.';

create function trax.close_rate(
    name text,
    key text default null,
    until timestamptz default null
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_close_rate';
comment on function trax.close_rate(text, text, timestamptz) is
    'Closes a rate, or a key of it: nothing of it starts before until (''infinity'': until it is opened). The latest time of all calls counts; a time that has passed opens the rate.';

create function trax.read_rate(
    name text,
    key text default null,
    cost int default 1
)
returns table (
    available int,
    free_at timestamptz
)
language c volatile parallel unsafe security definer
rows 1
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_read_rate';
comment on function trax.read_rate(text, text, int) is
    'Returns how much of a rate, or of a key of it, may start now, or else when. No row without such a rate, while it is being configured, and on a standby.';

create view trax.rate_state as
select
    r.name,
    r.allowed,
    r.period,
    coalesce(r.burst, r.allowed) as burst,
    u.available,
    u.free_at,
    c.closed_until,
    (
        select pg_catalog.count(*)
        from trax.work_queue q
        where q.rate operator(pg_catalog.=) r.name
    ) as waiting
from trax.rate r
left join trax.rate_closure c
    on c.rate operator(pg_catalog.=) r.name
    and c.key operator(pg_catalog.=) ''
    and c.closed_until operator(pg_catalog.>) pg_catalog.clock_timestamp()
left join lateral trax.read_rate(r.name) u on true;
comment on view trax.rate_state is 'The rates, with what is left of each: of the rate without a key, as keys have their own.';
comment on column trax.rate_state.name is 'The rate.';
comment on column trax.rate_state.allowed is 'How much may start in each period, of each key.';
comment on column trax.rate_state.period is 'The period.';
comment on column trax.rate_state.burst is 'How much may start at once after a pause.';
comment on column trax.rate_state.available is 'How much may start now.';
comment on column trax.rate_state.free_at is 'When the next may start, if none may now.';
comment on column trax.rate_state.closed_until is 'Nothing of it starts before; null when it is open.';
comment on column trax.rate_state.waiting is 'How many jobs of the rate wait, for whatever reason.';

create function trax.with_burst(
    name text,
    allowed int,
    period interval,
    burst int
)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select format('select trax.configure_rate(%L, %s, %L, burst => %s)', $1, $2, $3, $4)
$$;
comment on function trax.with_burst(text, int, interval, int) is
    'Internal. Returns the statement that gives a rate another burst.';

create function trax.reasons_of_rate(
    job_id bigint
)
returns table (
    reason text,
    detail text,
    since timestamptz,
    action text
)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    with waiting as (
        select
            q.job_id, q.group_name, q.rate, q.rate_key, q.cost,
            case when q.waits_for = 'time' then q.queued_at else greatest(q.queued_at, q.run_at) end as since
        from trax.work_queue q
        where q.job_id = $1
    )
    select
        'rate',
        format('Job %s needs %s of rate "%s"', r.job_id, r.cost, r.rate) || coalesce(', key "' || r.rate_key || '"', '')
            || case
                when t.name is null then ', which does not exist.'
                when c.closed_until is not null then format(', which is closed until %s.', c.closed_until)
                when r.cost > coalesce(t.burst, t.allowed) then format(
                    ', of which at most %s may start at once, its burst: it does not start.', coalesce(t.burst, t.allowed)
                )
                when u.available is null then ', which a transaction that has not ended configures.'
                else format(
                    ', of which %s may start now, and %s in each %s; so much may start at %s, after the jobs of it that stand before.',
                    u.available, t.allowed, t.period, u.free_at
                )
            end,
        r.since,
        case
            when t.name is null then format('select trax.configure_rate(%L, 100, ''1 min'')', r.rate)
            when r.cost > coalesce(t.burst, t.allowed) then trax.with_burst(t.name, t.allowed, t.period, r.cost) || format('; or: select trax.cancel(%s)', r.job_id)
            when c.closed_until is null and u.available is null then 'Nothing: wait. To find the transaction: select pid, query from pg_stat_activity where state = ''idle in transaction'''
            when c.closed_until is not null then format('Nothing: wait; or: select trax.close_rate(%s, until => now())', c.arguments)
            else format('Nothing: wait; or: select trax.configure_rate(%L, %s, %L)', r.rate, 2 * t.allowed::bigint, t.period)
        end
    from (
        select q.job_id, q.rate, q.rate_key, q.cost, q.since
        from waiting q
        where q.rate is not null
        union all
        select q.job_id, g.rate, null, 1, q.since
        from waiting q
        join trax.manifest_group g on g.name = q.group_name
        where g.rate is not null
            and (q.rate is distinct from g.rate or q.rate_key is not null)
    ) r
    left join trax.rate t on t.name = r.rate
    left join lateral trax.read_rate(r.rate, r.rate_key, r.cost) u on true
    left join lateral (
        select c.closed_until, quote_literal(c.rate) || case when c.key <> '' then ', ' || quote_literal(c.key) else '' end as arguments
        from trax.rate_closure c
        where c.rate = r.rate
            and c.key in ('', coalesce(r.rate_key, ''))
            and c.closed_until > clock_timestamp()
        order by c.closed_until desc
        limit 1
    ) c on true
    where t.name is null
        or u.free_at is not null
        or (u.available is null and not pg_is_in_recovery())
$$;
comment on function trax.reasons_of_rate(bigint) is
    'Internal. Returns the reasons of trax.explain_job() that are rates.';

create function trax.is_held_by_rate(
    rate text,
    key text
)
returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select $1 is not null
        and not exists (select from trax.read_rate($1, $2) u where u.available > 0)
$$;
comment on function trax.is_held_by_rate(text, text) is
    'Internal. Returns whether nothing of a rate and a key may start now; false for a null.';

create function trax.trouble_of_rates()
returns table (
    cause text,
    detail text,
    fix text
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select
        'rate_missing', format('%s jobs wait for rate "%s", which does not exist.', count(*), q.rate),
        format('select trax.configure_rate(%s, 100, ''1 min'')', quote_literal(q.rate))
    from trax.work_queue q
    where q.rate is not null
        and not exists (select from trax.rate r where r.name = q.rate)
    group by q.rate
    union all
    select
        'cost_above_burst',
        format(
            '%s jobs that wait cost up to %s of rate "%s", more than its burst of %s, and do not start.',
            count(*), max(q.cost), r.name, coalesce(r.burst, r.allowed)
        ),
        trax.with_burst(r.name, r.allowed, r.period, max(q.cost))
            || format('; or cancel them: select trax.cancel(job_id) from trax.work_queue where rate = %s and cost > %s', quote_literal(r.name), coalesce(r.burst, r.allowed))
    from trax.rate r
    join trax.work_queue q on q.rate = r.name and q.cost > coalesce(r.burst, r.allowed)
    group by r.name
$$;
comment on function trax.trouble_of_rates() is
    'Internal. Returns the causes of trax.diagnose() that are rates: those that jobs wait for and that do not exist, and those with jobs that cost more than a burst.';
