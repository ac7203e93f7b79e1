-- Every function that a producer or an operator calls, as the extension has it: trax_router.NAME
-- calls it on a shard, trax.NAME finds the shard. Written from the catalog of the extension by:
-- TRAX_WRITE_PAGES=1 cargo test -p trax_tests router::generate

create function trax_router.acknowledge_dead_letter(
    shard integer,
    bigint,
    text
)
returns boolean
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.acknowledge_dead_letter(id => $2::bigint, note => $3::text);
$$;
comment on function trax_router.acknowledge_dead_letter(integer, bigint, text) is
    'Internal. Calls trax.acknowledge_dead_letter() on a shard.';

create function trax.acknowledge_dead_letter(
    id bigint,
    note text default NULL::text
)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result boolean;
    shard constant integer := trax_router.shard_that_has($1, true);
begin
    result := trax_router.acknowledge_dead_letter(shard, $1, $2);
    return result;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.acknowledge_dead_letter(bigint, text) is
    'Resolves a dead letter without running anything, and lets the schedule of its manifest continue; returns false when it was resolved before.';

create function trax_router.acquire_token(
    shard integer,
    text,
    text,
    integer,
    interval
)
returns table (
    slot integer,
    token uuid,
    expires_at timestamp with time zone
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select called.slot, called.token, pg_catalog.to_jsonb(called.expires_at) operator(pg_catalog.#>>) '{}' as expires_at from trax.acquire_token(name => $2::text, holder => $3::text, max_holders => $4::integer, ttl => $5::interval) called;
$$;
comment on function trax_router.acquire_token(integer, text, text, integer, interval) is
    'Internal. Calls trax.acquire_token() on a shard.';

create function trax.acquire_token(
    name text,
    holder text,
    max_holders integer,
    ttl interval
)
returns table (
    slot integer,
    token uuid,
    expires_at timestamp with time zone
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard constant integer := trax_router.shard_of_token($1);
begin
    return query select called.* from trax_router.acquire_token(shard, $1, $2, $3, $4) called;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.acquire_token(text, text, integer, interval) is
    'Takes the lowest free of max_holders places (1 to 1000) of a name until ttl has passed; returns no row when all are held, or needed by those who wait in trax.await_token. Never waits. The max_holders of the last call counts. Commit at once.';

create function trax_router.activate(
    shard integer,
    text,
    jsonb
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.activate(name => $2::text, input => $3::jsonb);
$$;
comment on function trax_router.activate(integer, text, jsonb) is
    'Internal. Calls trax.activate() on a shard.';

create function trax.activate(
    name text,
    input jsonb default NULL::jsonb
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            result := trax_router.activate(shard, $1, $2);
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.remember($1, has_it);
    return result;
end;
$$;
comment on function trax.activate(text, jsonb) is
    'Queues a job of a dormant dependent and returns the job''s id; only while a job of one of its parents is being executed.';

create function trax_router.apply(
    shard integer,
    jsonb,
    boolean,
    boolean,
    text
)
returns table (
    action text,
    kind text,
    name text,
    detail text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select called.action, called.kind, called.name, called.detail from trax.apply(document => $2::jsonb, prune => $3::boolean, dry_run => $4::boolean, source => $5::text) called;
$$;
comment on function trax_router.apply(integer, jsonb, boolean, boolean, text) is
    'Internal. Calls trax.apply() on a shard.';

create function trax_router.cancel(
    shard integer,
    bigint
)
returns text
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.cancel(job_id => $2::bigint);
$$;
comment on function trax_router.cancel(integer, bigint) is
    'Internal. Calls trax.cancel() on a shard.';

create function trax.cancel(
    job_id bigint
)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result text;
    shard constant integer := trax_router.shard_that_has($1, false);
begin
    result := trax_router.cancel(shard, $1);
    return result;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.cancel(bigint) is
    'Cancels a job. Returns ''cancelled'' when it waited, ''requested'' when its worker is asked to stop, ''finished'' when it has ended, ''unknown'' when there is none.';

create function trax_router.cancel_group(
    shard integer,
    text
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.cancel_group(name => $2::text);
$$;
comment on function trax_router.cancel_group(integer, text) is
    'Internal. Calls trax.cancel_group() on a shard.';

create function trax.cancel_group(
    name text
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard integer;
    refusal trax_router.failure;
    done integer[] := '{}';
    total bigint := 0;
-- Each for itself: one that is away or refuses is told of when the others have done it.
begin
    for shard in select * from trax_router.shards_of_group($1) loop
        begin
            result := trax_router.cancel_group(shard, $1);
            total := total + result;
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if refusal is null or trax_router.is_cancelled(failure) then
                    refusal := failure;
                end if;
                exit when trax_router.is_cancelled(failure);
        end;
    end loop;
    if refusal is not null then
        perform trax_router.raise(refusal, trax_router.done_on(done));
    end if;
    return total;
end;
$$;
comment on function trax.cancel_group(text) is
    'Cancels the live jobs of a group: waiting ones end, and the workers of the others are asked to stop. Returns how many.';

create function trax_router.cancel_manifest(
    shard integer,
    text
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.cancel_manifest(name => $2::text);
$$;
comment on function trax_router.cancel_manifest(integer, text) is
    'Internal. Calls trax.cancel_manifest() on a shard.';

create function trax.cancel_manifest(
    name text
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            result := trax_router.cancel_manifest(shard, $1);
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.remember($1, has_it);
    return result;
end;
$$;
comment on function trax.cancel_manifest(text) is
    'Cancels the live jobs of a manifest: waiting ones end, and the workers of the others are asked to stop. Returns how many. The schedule continues.';

create function trax_router.check_once(
    shard integer,
    interval
)
returns table (
    rule text,
    detail text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select called.rule, called.detail from trax.check(history => $2::interval) called;
$$;
comment on function trax_router.check_once(integer, interval) is
    'Internal. Calls trax.check() on a shard.';

create function trax_router.check(
    shard integer,
    interval
)
returns table (
    rule text,
    detail text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.check_once($1, $2) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.check_once($1, $2) called;
end;
$$;
comment on function trax_router.check(integer, interval) is
    'Internal. Calls trax.check() on a shard, once more when the connection broke.';

create function trax.check(
    history interval default '01:00:00'::interval
)
returns table (
    rule text,
    detail text,
    shard integer
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
begin
    for shard in select * from trax_router.numbers() loop
        begin
            return query select called.*, shard from trax_router.check(shard, $1) called;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
                return query select 'every shard can be reached', failure.message, shard;
        end;
    end loop;
    return query
    select
        'every job is on one shard',
        format('Job %s of group "%s" is on shard %s and on shard %s.', j.job_id, j.group_name, j.other_shard, j.shard),
        j.shard
    from trax_router.jobs_on_two_shards() j;
end;
$$;
comment on function trax.check(interval) is
    'Verifies every invariant that SQL can see. Returns a row for each violation, none when there is none. Of history only what ended within this time is read, with all other runs of the same jobs; null reads all of it.';

create function trax_router.configure_group(
    shard integer,
    text,
    integer,
    integer,
    boolean,
    integer
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.configure_group(name => $2::text, max_active_jobs => $3::integer, priority => $4::integer, enabled => $5::boolean, max_per_key => $6::integer);
$$;
comment on function trax_router.configure_group(integer, text, integer, integer, boolean, integer) is
    'Internal. Calls trax.configure_group() on a shard.';

create function trax.configure_group(
    name text,
    max_active_jobs integer default NULL::integer,
    priority integer default NULL::integer,
    enabled boolean default NULL::boolean,
    max_per_key integer default NULL::integer
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    refusal trax_router.failure;
    done integer[] := '{}';
-- Each for itself: one that is away or refuses is told of when the others have done it.
begin
    for shard in select * from trax_router.shards_of_settings($1) loop
        begin
            perform trax_router.configure_group(shard, $1, $2, $3, $4, $5);
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if refusal is null or trax_router.is_cancelled(failure) then
                    refusal := failure;
                end if;
                exit when trax_router.is_cancelled(failure);
        end;
    end loop;
    if refusal is not null then
        perform trax_router.raise(refusal, trax_router.done_on(done));
    end if;
end;
$$;
comment on function trax.configure_group(text, integer, integer, boolean, integer) is
    'Creates or changes the settings of a group; arguments that are omitted keep their value. max_active_jobs 0 is no limit. When it has disabled a group and committed, no claim of the group''s jobs commits any more.';

create function trax_router.diagnose_once(
    shard integer,
    interval,
    name
)
returns table (
    cause text,
    severity text,
    detail text,
    fix text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select called.cause, called.severity, called.detail, called.fix from trax.diagnose(patience => $2::interval, role => $3::name) called;
$$;
comment on function trax_router.diagnose_once(integer, interval, name) is
    'Internal. Calls trax.diagnose() on a shard.';

create function trax_router.diagnose(
    shard integer,
    interval,
    name
)
returns table (
    cause text,
    severity text,
    detail text,
    fix text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.diagnose_once($1, $2, $3) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.diagnose_once($1, $2, $3) called;
end;
$$;
comment on function trax_router.diagnose(integer, interval, name) is
    'Internal. Calls trax.diagnose() on a shard, once more when the connection broke.';

create function trax.diagnose(
    patience interval default '00:05:00'::interval,
    role name default CURRENT_USER
)
returns table (
    cause text,
    severity text,
    detail text,
    fix text,
    shard integer
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
begin
    for shard in select * from trax_router.numbers() loop
        begin
            return query select called.*, shard from trax_router.diagnose(shard, $1, $2) called;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
                return query select 'shard_away', 'critical', failure.message, 'start its server'::text, shard;
        end;
    end loop;
    return query select own.* from trax_router.unended_moves($1) own;
    return query
    select
        'job_on_two_shards', 'critical',
        format('%s jobs of group "%s" are on shard %s and on shard %s, and may run twice: one of the shards was restored from a backup.',
            count(*), j.group_name, j.other_shard, j.shard),
        format('call trax_router.move_group(%L, %s, null)', j.group_name, min(trax_router.shard_of_group(j.group_name))),
        j.shard
    from trax_router.jobs_on_two_shards() j
    group by j.group_name, j.shard, j.other_shard
    order by j.group_name, j.shard;
end;
$$;
comment on function trax.diagnose(interval, name) is
    'Returns causes of trouble, each with its severity (critical or warning), what was seen and what to type; no rows when healthy. Waiting, snapshots and silence count when they last longer than patience; the grants of role are checked.';

create function trax_router.disable_manifest(
    shard integer,
    text
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.disable_manifest(name => $2::text);
$$;
comment on function trax_router.disable_manifest(integer, text) is
    'Internal. Calls trax.disable_manifest() on a shard.';

create function trax.disable_manifest(
    name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            perform trax_router.disable_manifest(shard, $1);
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.remember($1, has_it);
end;
$$;
comment on function trax.disable_manifest(text) is
    'Disables a manifest; jobs that wait or run continue.';

create function trax_router.enable_manifest(
    shard integer,
    text
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.enable_manifest(name => $2::text);
$$;
comment on function trax_router.enable_manifest(integer, text) is
    'Internal. Calls trax.enable_manifest() on a shard.';

create function trax.enable_manifest(
    name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            perform trax_router.enable_manifest(shard, $1);
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.remember($1, has_it);
end;
$$;
comment on function trax.enable_manifest(text) is
    'Enables a manifest. Occurrences that it missed while it was disabled are late, and its misfire policy decides about them.';

create function trax_router.enqueue(
    shard integer,
    text,
    jsonb,
    timestamp with time zone,
    text,
    integer,
    integer,
    interval,
    text,
    text,
    jsonb,
    interval,
    interval
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set datestyle = iso
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select trax.enqueue(task => $2::text, input => $3::jsonb, run_at => $4::timestamp with time zone, group_name => $5::text, priority => $6::integer, max_retries => $7::integer, timeout => $8::interval, unique_key => $9::text, concurrency_key => $10::text, trace => $11::jsonb, retry_delay => $12::interval, unique_for => $13::interval);
$$;
comment on function trax_router.enqueue(integer, text, jsonb, timestamp with time zone, text, integer, integer, interval, text, text, jsonb, interval, interval) is
    'Internal. Calls trax.enqueue() on a shard.';

create function trax.enqueue(
    task text,
    input jsonb default '{}'::jsonb,
    run_at timestamp with time zone default NULL::timestamp with time zone,
    group_name text default NULL::text,
    priority integer default 0,
    max_retries integer default NULL::integer,
    timeout interval default NULL::interval,
    unique_key text default NULL::text,
    concurrency_key text default NULL::text,
    trace jsonb default NULL::jsonb,
    retry_delay interval default NULL::interval,
    unique_for interval default NULL::interval
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard integer := trax_router.shard_of_group($4, coalesce($9, $8));
    tried integer[] := '{}';
-- A job that may run anywhere goes to another shard when this one is away.
begin
    loop
        begin
            result := trax_router.enqueue(shard, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
            return result;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                tried := tried || shard;
                shard := null;
                if trax_router.was_not_reached(failure.message) then
                    shard := trax_router.shard_of_group($4, coalesce($9, $8), tried);
                end if;
                if shard is null then
                    perform trax_router.raise(failure);
                end if;
        end;
    end loop;
end;
$$;
comment on function trax.enqueue(text, jsonb, timestamp with time zone, text, integer, integer, interval, text, text, jsonb, interval, interval) is
    'Queues one job and returns its id. It has max_retries attempts after the first; the delay before each begins with retry_delay and grows. While a job with the same unique_key is alive (waiting or executing), returns that job''s id and queues nothing; with unique_for the key stays alive at least so long after the job was queued, also when that has ended. timeout, retry_delay and unique_for are intervals, as in timeout => ''90 s'': a driver passes its own type for them (in Python a timedelta) or make_interval(secs => 90), not a number.';

create function trax_router.enqueue_many(
    shard integer,
    text,
    jsonb[],
    timestamp with time zone,
    text,
    integer,
    integer,
    interval,
    text,
    text,
    jsonb,
    interval,
    interval
)
returns setof bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set datestyle = iso
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select trax.enqueue_many(task => $2::text, inputs => $3::jsonb[], run_at => $4::timestamp with time zone, group_name => $5::text, priority => $6::integer, max_retries => $7::integer, timeout => $8::interval, unique_key => $9::text, concurrency_key => $10::text, trace => $11::jsonb, retry_delay => $12::interval, unique_for => $13::interval);
$$;
comment on function trax_router.enqueue_many(integer, text, jsonb[], timestamp with time zone, text, integer, integer, interval, text, text, jsonb, interval, interval) is
    'Internal. Calls trax.enqueue_many() on a shard.';

create function trax_router.enqueue_sql(
    shard integer,
    text,
    timestamp with time zone,
    text,
    integer,
    integer,
    interval,
    text,
    text,
    interval,
    interval,
    text
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set datestyle = iso
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select trax.enqueue_sql(command => $2::text, run_at => $3::timestamp with time zone, group_name => $4::text, priority => $5::integer, max_retries => $6::integer, timeout => $7::interval, unique_key => $8::text, concurrency_key => $9::text, retry_delay => $10::interval, unique_for => $11::interval, run_as => $12::text);
$$;
comment on function trax_router.enqueue_sql(integer, text, timestamp with time zone, text, integer, integer, interval, text, text, interval, interval, text) is
    'Internal. Calls trax.enqueue_sql() on a shard.';

create function trax.enqueue_sql(
    command text,
    run_at timestamp with time zone default NULL::timestamp with time zone,
    group_name text default NULL::text,
    priority integer default 0,
    max_retries integer default NULL::integer,
    timeout interval default NULL::interval,
    unique_key text default NULL::text,
    concurrency_key text default NULL::text,
    retry_delay interval default NULL::interval,
    unique_for interval default NULL::interval,
    run_as text default NULL::text
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard integer := trax_router.shard_of_group($3, coalesce($8, $7));
    tried integer[] := '{}';
-- A job that may run anywhere goes to another shard when this one is away.
begin
    loop
        begin
            result := trax_router.enqueue_sql(shard, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
            return result;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                tried := tried || shard;
                shard := null;
                if trax_router.was_not_reached(failure.message) then
                    shard := trax_router.shard_of_group($3, coalesce($8, $7), tried);
                end if;
                if shard is null then
                    perform trax_router.raise(failure);
                end if;
        end;
    end loop;
end;
$$;
comment on function trax.enqueue_sql(text, timestamp with time zone, text, integer, integer, interval, text, text, interval, interval, text) is
    'Queues a statement that the server runs by itself, and returns the id of its job, whose task is sql. It runs in a session of the calling role, or of run_as, which the caller must be a member of; several statements are one transaction. What runs in a transaction takes effect exactly once, with the record of its completion; what cannot (VACUUM, CREATE INDEX CONCURRENTLY, a CALL that commits) runs at least once. The other arguments are those of trax.enqueue.';

create function trax_router.explain_job_once(
    shard integer,
    bigint
)
returns table (
    reason text,
    detail text,
    since timestamp with time zone,
    action text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select called.reason, called.detail, pg_catalog.to_jsonb(called.since) operator(pg_catalog.#>>) '{}' as since, called.action from trax.explain_job(job_id => $2::bigint) called;
$$;
comment on function trax_router.explain_job_once(integer, bigint) is
    'Internal. Calls trax.explain_job() on a shard.';

create function trax_router.explain_job(
    shard integer,
    bigint
)
returns table (
    reason text,
    detail text,
    since timestamp with time zone,
    action text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.explain_job_once($1, $2) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.explain_job_once($1, $2) called;
end;
$$;
comment on function trax_router.explain_job(integer, bigint) is
    'Internal. Calls trax.explain_job() on a shard, once more when the connection broke.';

create function trax.explain_job(
    job_id bigint
)
returns table (
    reason text,
    detail text,
    since timestamp with time zone,
    action text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard constant integer := trax_router.shard_that_has($1, false);
begin
    return query select called.* from trax_router.explain_job(shard, $1) called;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.explain_job(bigint) is
    'Returns why a job waits: a row for each reason, with since when it holds and what to do. A job that does not wait has one row: executing, departed to another shard, dead_letter or ended.';

create function trax_router.explain_manifest_once(
    shard integer,
    text
)
returns table (
    reason text,
    detail text,
    since timestamp with time zone,
    action text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select called.reason, called.detail, pg_catalog.to_jsonb(called.since) operator(pg_catalog.#>>) '{}' as since, called.action from trax.explain_manifest(name => $2::text) called;
$$;
comment on function trax_router.explain_manifest_once(integer, text) is
    'Internal. Calls trax.explain_manifest() on a shard.';

create function trax_router.explain_manifest(
    shard integer,
    text
)
returns table (
    reason text,
    detail text,
    since timestamp with time zone,
    action text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.explain_manifest_once($1, $2) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.explain_manifest_once($1, $2) called;
end;
$$;
comment on function trax_router.explain_manifest(integer, text) is
    'Internal. Calls trax.explain_manifest() on a shard, once more when the connection broke.';

create function trax.explain_manifest(
    name text
)
returns table (
    reason text,
    detail text,
    since timestamp with time zone,
    action text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            return query select called.* from trax_router.explain_manifest(shard, $1) called;
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.remember($1, has_it);
end;
$$;
comment on function trax.explain_manifest(text) is
    'Returns why a manifest does or does not run now: a row for each reason, with since when it holds and what to do.';

create function trax_router.extend_token(
    shard integer,
    text,
    uuid,
    interval
)
returns boolean
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select trax.extend_token(name => $2::text, token => $3::uuid, ttl => $4::interval);
$$;
comment on function trax_router.extend_token(integer, text, uuid, interval) is
    'Internal. Calls trax.extend_token() on a shard.';

create function trax.extend_token(
    name text,
    token uuid,
    ttl interval
)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result boolean;
    shard constant integer := trax_router.shard_of_token($1);
begin
    result := trax_router.extend_token(shard, $1, $2, $3);
    return result;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.extend_token(text, uuid, interval) is
    'Extends a token to ttl from now; returns false when it is lost, for example because it has expired. In one transaction with a write, no one else gets the slot before that transaction has committed.';

create function trax_router.get_jobs_once(
    shard integer,
    bigint[]
)
returns table (
    job_id bigint,
    state text,
    attempt integer,
    task text,
    manifest text,
    group_name text,
    priority integer,
    run_at timestamp with time zone,
    scheduled_for timestamp with time zone,
    queued_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    worker text,
    error text,
    output jsonb,
    progress jsonb
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select called.job_id, called.state, called.attempt, called.task, called.manifest, called.group_name, called.priority, pg_catalog.to_jsonb(called.run_at) operator(pg_catalog.#>>) '{}' as run_at, pg_catalog.to_jsonb(called.scheduled_for) operator(pg_catalog.#>>) '{}' as scheduled_for, pg_catalog.to_jsonb(called.queued_at) operator(pg_catalog.#>>) '{}' as queued_at, pg_catalog.to_jsonb(called.started_at) operator(pg_catalog.#>>) '{}' as started_at, pg_catalog.to_jsonb(called.finished_at) operator(pg_catalog.#>>) '{}' as finished_at, called.worker, called.error, called.output, called.progress from trax.get_jobs(job_ids => $2::bigint[]) called;
$$;
comment on function trax_router.get_jobs_once(integer, bigint[]) is
    'Internal. Calls trax.get_jobs() on a shard.';

create function trax_router.get_jobs(
    shard integer,
    bigint[]
)
returns table (
    job_id bigint,
    state text,
    attempt integer,
    task text,
    manifest text,
    group_name text,
    priority integer,
    run_at timestamp with time zone,
    scheduled_for timestamp with time zone,
    queued_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    worker text,
    error text,
    output jsonb,
    progress jsonb
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.get_jobs_once($1, $2) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.get_jobs_once($1, $2) called;
end;
$$;
comment on function trax_router.get_jobs(integer, bigint[]) is
    'Internal. Calls trax.get_jobs() on a shard, once more when the connection broke.';

create function trax_router.grant_access(
    shard integer,
    text,
    text,
    text[],
    text[]
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.grant_access(role => $2::text::regrole, level => $3::text, tasks => $4::text[], groups => $5::text[]);
$$;
comment on function trax_router.grant_access(integer, text, text, text[], text[]) is
    'Internal. Calls trax.grant_access() on a shard.';

create function trax_router.limit_queue_time(
    shard integer,
    bigint,
    interval
)
returns boolean
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select trax.limit_queue_time(job_id => $2::bigint, time_limit => $3::interval);
$$;
comment on function trax_router.limit_queue_time(integer, bigint, interval) is
    'Internal. Calls trax.limit_queue_time() on a shard.';

create function trax.limit_queue_time(
    job_id bigint,
    time_limit interval default NULL::interval
)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result boolean;
    shard constant integer := trax_router.shard_that_has($1, false);
begin
    result := trax_router.limit_queue_time(shard, $1, $2);
    return result;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.limit_queue_time(bigint, interval) is
    'Sets how long from now, or from its run_at, a job may wait: one that waits longer, for a retry too, ends as failed with the kind ''expired''. Null removes the limit. Returns false when the job does not wait. In the transaction that enqueues the job, the limit is set before anyone can claim it.';

create function trax_router.metrics_once(
    shard integer
)
returns table (
    name text,
    labels jsonb,
    value double precision
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select called.name, called.labels, called.value from trax.metrics() called;
$$;
comment on function trax_router.metrics_once(integer) is
    'Internal. Calls trax.metrics() on a shard.';

create function trax_router.metrics(
    shard integer
)
returns table (
    name text,
    labels jsonb,
    value double precision
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.metrics_once($1) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.metrics_once($1) called;
end;
$$;
comment on function trax_router.metrics(integer) is
    'Internal. Calls trax.metrics() on a shard, once more when the connection broke.';

create function trax.metrics()
returns table (
    name text,
    labels jsonb,
    value double precision
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
begin
    for shard in select * from trax_router.numbers() loop
        begin
            return query select called.name, called.labels || jsonb_build_object('shard', shard::text), called.value from trax_router.metrics(shard) called;
            return query select 'trax_shard_up', jsonb_build_object('shard', shard::text), 1::double precision;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
                return query select 'trax_shard_up', jsonb_build_object('shard', shard::text), 0::double precision;
        end;
    end loop;
end;
$$;
comment on function trax.metrics() is
    'Returns numbers for monitoring, a row for each sample, named and labelled as Prometheus does; names that end in _total and the buckets of histograms count since the server started. Cheap at any length of queue and history.';

create function trax_router.pause(
    shard integer,
    text
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.pause(reason => $2::text);
$$;
comment on function trax_router.pause(integer, text) is
    'Internal. Calls trax.pause() on a shard.';

create function trax.pause(
    reason text default NULL::text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    refusal trax_router.failure;
    done integer[] := '{}';
-- Each for itself: one that is away or refuses is told of when the others have done it.
begin
    for shard in select * from trax_router.numbers() loop
        begin
            perform trax_router.pause(shard, $1);
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if refusal is null or trax_router.is_cancelled(failure) then
                    refusal := failure;
                end if;
                exit when trax_router.is_cancelled(failure);
        end;
    end loop;
    if refusal is not null then
        perform trax_router.raise(refusal, trax_router.done_on(done));
    end if;
end;
$$;
comment on function trax.pause(text) is
    'Pauses the scheduler of this database until trax.resume(), across restarts too; trax.tick() and claims of workers still work. No SQL job begins, and one that runs ends as usual.';

create function trax_router.preview_once(
    shard integer,
    text,
    timestamp with time zone,
    integer
)
returns table (
    run_at timestamp with time zone,
    local_time text,
    note text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set datestyle = iso
as $$
    connect trax_router.address($1);
    select pg_catalog.to_jsonb(called.run_at) operator(pg_catalog.#>>) '{}' as run_at, called.local_time, called.note from trax.preview(name => $2::text, after => $3::timestamp with time zone, count => $4::integer) called;
$$;
comment on function trax_router.preview_once(integer, text, timestamp with time zone, integer) is
    'Internal. Calls trax.preview() on a shard.';

create function trax_router.preview(
    shard integer,
    text,
    timestamp with time zone,
    integer
)
returns table (
    run_at timestamp with time zone,
    local_time text,
    note text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.preview_once($1, $2, $3, $4) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.preview_once($1, $2, $3, $4) called;
end;
$$;
comment on function trax_router.preview(integer, text, timestamp with time zone, integer) is
    'Internal. Calls trax.preview() on a shard, once more when the connection broke.';

create function trax.preview(
    name text,
    after timestamp with time zone default now(),
    count integer default 5
)
returns table (
    run_at timestamp with time zone,
    local_time text,
    note text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            return query select called.* from trax_router.preview(shard, $1, $2, $3) called;
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.remember($1, has_it);
end;
$$;
comment on function trax.preview(text, timestamp with time zone, integer) is
    'Returns the runs of a manifest that come after a time, with the local time in its zone and whatever is unusual: an hour that the clock skips or repeats, exclusions, the variance.';

create function trax_router.preview_cron_once(
    shard integer,
    text,
    text,
    timestamp with time zone,
    integer
)
returns table (
    run_at timestamp with time zone,
    local_time text,
    note text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set datestyle = iso
as $$
    connect trax_router.address($1);
    select pg_catalog.to_jsonb(called.run_at) operator(pg_catalog.#>>) '{}' as run_at, called.local_time, called.note from trax.preview_cron(expression => $2::text, timezone => $3::text, after => $4::timestamp with time zone, count => $5::integer) called;
$$;
comment on function trax_router.preview_cron_once(integer, text, text, timestamp with time zone, integer) is
    'Internal. Calls trax.preview_cron() on a shard.';

create function trax_router.preview_cron(
    shard integer,
    text,
    text,
    timestamp with time zone,
    integer
)
returns table (
    run_at timestamp with time zone,
    local_time text,
    note text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.preview_cron_once($1, $2, $3, $4, $5) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.preview_cron_once($1, $2, $3, $4, $5) called;
end;
$$;
comment on function trax_router.preview_cron(integer, text, text, timestamp with time zone, integer) is
    'Internal. Calls trax.preview_cron() on a shard, once more when the connection broke.';

create function trax.preview_cron(
    expression text,
    timezone text default 'UTC'::text,
    after timestamp with time zone default now(),
    count integer default 5
)
returns table (
    run_at timestamp with time zone,
    local_time text,
    note text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard constant integer := trax_router.any_shard();
begin
    return query select called.* from trax_router.preview_cron(shard, $1, $2, $3, $4) called;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.preview_cron(text, text, timestamp with time zone, integer) is
    'Returns the times of a cron expression in a zone that come after a time, as trax.preview() shows those of a manifest; or what is wrong with it, and where.';

create function trax_router.release_token(
    shard integer,
    text,
    uuid
)
returns boolean
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.release_token(name => $2::text, token => $3::uuid);
$$;
comment on function trax_router.release_token(integer, text, uuid) is
    'Internal. Calls trax.release_token() on a shard.';

create function trax.release_token(
    name text,
    token uuid
)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result boolean;
    shard constant integer := trax_router.shard_of_token($1);
begin
    result := trax_router.release_token(shard, $1, $2);
    return result;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.release_token(text, uuid) is
    'Releases a token; returns false, and changes nothing, when it was lost or released before.';

create function trax_router.requeue_dead_letter(
    shard integer,
    bigint,
    text
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.requeue_dead_letter(id => $2::bigint, note => $3::text);
$$;
comment on function trax_router.requeue_dead_letter(integer, bigint, text) is
    'Internal. Calls trax.requeue_dead_letter() on a shard.';

create function trax.requeue_dead_letter(
    id bigint,
    note text default NULL::text
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard constant integer := trax_router.shard_that_has($1, true);
begin
    result := trax_router.requeue_dead_letter(shard, $1, $2);
    return result;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.requeue_dead_letter(bigint, text) is
    'Queues a new job with new attempts in place of a dead one and returns its id. Refused (23505) while another job has its unique key.';

create function trax_router.requeue_dead_letters(
    shard integer,
    text,
    text,
    text,
    timestamp with time zone,
    integer
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set datestyle = iso
as $$
    connect trax_router.address($1);
    select trax.requeue_dead_letters(task => $2::text, manifest => $3::text, group_name => $4::text, since => $5::timestamp with time zone, max_count => $6::integer);
$$;
comment on function trax_router.requeue_dead_letters(integer, text, text, text, timestamp with time zone, integer) is
    'Internal. Calls trax.requeue_dead_letters() on a shard.';

create function trax_router.resume(
    shard integer
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.resume();
$$;
comment on function trax_router.resume(integer) is
    'Internal. Calls trax.resume() on a shard.';

create function trax.resume()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    refusal trax_router.failure;
    done integer[] := '{}';
-- Each for itself: one that is away or refuses is told of when the others have done it.
begin
    for shard in select * from trax_router.numbers() loop
        begin
            perform trax_router.resume(shard);
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if refusal is null or trax_router.is_cancelled(failure) then
                    refusal := failure;
                end if;
                exit when trax_router.is_cancelled(failure);
        end;
    end loop;
    if refusal is not null then
        perform trax_router.raise(refusal, trax_router.done_on(done));
    end if;
end;
$$;
comment on function trax.resume() is
    'Resumes a paused scheduler.';

create function trax_router.revoke_access(
    shard integer,
    text
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.revoke_access(role => $2::text::regrole);
$$;
comment on function trax_router.revoke_access(integer, text) is
    'Internal. Calls trax.revoke_access() on a shard.';

create function trax_router.run_now(
    shard integer,
    bigint
)
returns text
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.run_now(job_id => $2::bigint);
$$;
comment on function trax_router.run_now(integer, bigint) is
    'Internal. Calls trax.run_now() on a shard.';

create function trax.run_now(
    job_id bigint
)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result text;
    shard constant integer := trax_router.shard_that_has($1, false);
begin
    result := trax_router.run_now(shard, $1);
    return result;
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax.run_now(bigint) is
    'Makes a job claimable that waits for its next attempt or its run_at, and returns where it is: ''ready'', ''blocked'' (waiting for its concurrency key or manifest), ''in_progress'', ''finished'' or ''unknown''.';

create function trax_router.schedule(
    shard integer,
    text,
    text,
    jsonb,
    text,
    interval,
    timestamp with time zone,
    text[],
    text,
    boolean,
    text,
    text,
    integer,
    integer,
    interval,
    interval,
    text,
    interval,
    integer,
    text,
    integer,
    interval,
    jsonb,
    timestamp with time zone,
    timestamp with time zone,
    boolean,
    text,
    text,
    text
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set datestyle = iso
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select trax.schedule(name => $2::text, task => $3::text, input => $4::jsonb, cron => $5::text, every => $6::interval, run_at => $7::timestamp with time zone, depends_on => $8::text[], depends_mode => $9::text, dormant => $10::boolean, timezone => $11::text, group_name => $12::text, priority => $13::integer, max_retries => $14::integer, retry_delay => $15::interval, timeout => $16::interval, misfire => $17::text, misfire_threshold => $18::interval, misfire_limit => $19::integer, overlap => $20::text, max_concurrency => $21::integer, variance => $22::interval, exclusions => $23::jsonb, starts_at => $24::timestamp with time zone, ends_at => $25::timestamp with time zone, enabled => $26::boolean, on_dead_letter => $27::text, sql => $28::text, run_as => $29::text);
$$;
comment on function trax_router.schedule(integer, text, text, jsonb, text, interval, timestamp with time zone, text[], text, boolean, text, text, integer, integer, interval, interval, text, interval, integer, text, integer, interval, jsonb, timestamp with time zone, timestamp with time zone, boolean, text, text, text) is
    'Internal. Calls trax.schedule() on a shard.';

create function trax_router.status_once(
    shard integer
)
returns table (
    item text,
    value text,
    healthy boolean,
    hint text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select called.item, called.value, called.healthy, called.hint from trax.status() called;
$$;
comment on function trax_router.status_once(integer) is
    'Internal. Calls trax.status() on a shard.';

create function trax_router.status(
    shard integer
)
returns table (
    item text,
    value text,
    healthy boolean,
    hint text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.status_once($1) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.status_once($1) called;
end;
$$;
comment on function trax_router.status(integer) is
    'Internal. Calls trax.status() on a shard, once more when the connection broke.';

create function trax.status()
returns table (
    item text,
    value text,
    healthy boolean,
    hint text,
    shard integer
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
begin
    for shard in select * from trax_router.numbers() loop
        begin
            return query select called.*, shard from trax_router.status(shard) called;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
                return query select 'shard', 'cannot be reached', false, failure.message, shard;
        end;
    end loop;
end;
$$;
comment on function trax.status() is
    'Returns the state of trax in this database: a row for each item, with whether it is as it should be and, if not, what to type. Counts of waiting jobs end at 1,000,000.';

create function trax_router.tick(
    shard integer
)
returns table (
    step text,
    affected bigint
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select called.step, called.affected from trax.tick() called;
$$;
comment on function trax_router.tick(integer) is
    'Internal. Calls trax.tick() on a shard.';

create function trax.tick()
returns table (
    step text,
    affected bigint,
    shard integer
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
begin
    for shard in select * from trax_router.numbers() loop
        begin
            return query select called.*, shard from trax_router.tick(shard) called;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
                return query select 'shard cannot be reached', 0::bigint, shard;
        end;
    end loop;
end;
$$;
comment on function trax.tick() is
    'Runs one cycle of the manager. Returns a row for each step with the number of rows it changed, and for cleaning up when there was something to do; no rows when another cycle is running.';

create function trax_router.trigger(
    shard integer,
    text,
    jsonb,
    interval
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
set intervalstyle = iso_8601
as $$
    connect trax_router.address($1);
    select trax.trigger(name => $2::text, input => $3::jsonb, delay => $4::interval);
$$;
comment on function trax_router.trigger(integer, text, jsonb, interval) is
    'Internal. Calls trax.trigger() on a shard.';

create function trax.trigger(
    name text,
    input jsonb default NULL::jsonb,
    delay interval default NULL::interval
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            result := trax_router.trigger(shard, $1, $2, $3);
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.remember($1, has_it);
    return result;
end;
$$;
comment on function trax.trigger(text, jsonb, interval) is
    'Queues a job of a manifest by hand, now or after a delay, with the manifest''s input or another, and returns the job''s id. Works also while the manifest is disabled.';

create function trax_router.trigger_group(
    shard integer,
    text
)
returns bigint
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.trigger_group(group_name => $2::text);
$$;
comment on function trax_router.trigger_group(integer, text) is
    'Internal. Calls trax.trigger_group() on a shard.';

create function trax.trigger_group(
    group_name text
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    result bigint;
    shard integer;
    refusal trax_router.failure;
    done integer[] := '{}';
    total bigint := 0;
-- Each for itself: one that is away or refuses is told of when the others have done it.
begin
    for shard in select * from trax_router.shards_of_group($1) loop
        begin
            result := trax_router.trigger_group(shard, $1);
            total := total + result;
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                if refusal is null or trax_router.is_cancelled(failure) then
                    refusal := failure;
                end if;
                exit when trax_router.is_cancelled(failure);
        end;
    end loop;
    if refusal is not null then
        perform trax_router.raise(refusal, trax_router.done_on(done));
    end if;
    return total;
end;
$$;
comment on function trax.trigger_group(text) is
    'Queues a job of each enabled manifest of a group by hand, except dormant ones, and returns how many.';

create function trax_router.unschedule(
    shard integer,
    text
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.unschedule(name => $2::text);
$$;
comment on function trax_router.unschedule(integer, text) is
    'Internal. Calls trax.unschedule() on a shard.';

create function trax.unschedule(
    name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
    shard integer;
    has_it integer;
    refusal trax_router.failure;
begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            perform trax_router.unschedule(shard, $1);
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.forget($1);
end;
$$;
comment on function trax.unschedule(text) is
    'Removes a manifest and cancels its waiting jobs; running jobs continue, and history stays.';
