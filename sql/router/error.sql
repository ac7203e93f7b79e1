-- The error of a shard, as the shard reported it, and PL/Proxy's error when no shard was reached.

create function trax_router.has_no_connection(
    message text
)
returns boolean
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select message ~ '^PL/Proxy function [^:]*: \[[^\]]*\] PQconnect(Start|Poll): '
$$;
comment on function trax_router.has_no_connection(text) is
    'Internal. Returns whether a message of PL/Proxy says that there was no connection, so that nothing was done.';

create function trax_router.state_of_refusal(
    message text
)
returns text
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
    -- A failed connection has no SQLSTATE, only a message: of the server, of PgBouncer or of libpq.
    -- A shard whose message is not in English counts as not reached.
    select case
        when not trax_router.has_no_connection(message) then null
        when message ~ 'database .* does not exist|no such database' then '3D000'
        when message ~ 'authentication failed|no password supplied|SASL' then '28P01'
        when message ~ 'permission denied for database' then '42501'
        when message ~ 'role .* (does not exist|is not permitted to log in)|no such user|pg_hba\.conf|certificate'
            then '28000'
    end
$$;
comment on function trax_router.state_of_refusal(text) is
    'Internal. Returns the SQLSTATE with which the server of a shard refused a connection; null when no server refused one.';

create function trax_router.was_not_reached(
    message text
)
returns boolean
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select trax_router.has_no_connection(message) and trax_router.state_of_refusal(message) is null
$$;
comment on function trax_router.was_not_reached(text) is
    'Internal. Returns whether a message of PL/Proxy says that the server of a shard is not there, rather than that it refuses.';

create type trax_router.failure as (
    shard int,
    state text,
    message text,
    detail text,
    hint text
);
comment on type trax_router.failure is 'Internal. The error of a call to a shard, as PL/Proxy raised it.';

create function trax_router.is_away(
    failure trax_router.failure
)
returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select trax_router.was_not_reached(failure.message)
        or failure.state = '55000' and failure.message ~ '^shard [0-9]+ is closed$'
$$;
comment on function trax_router.is_away(trax_router.failure) is
    'Internal. Returns whether a shard is not there, on purpose or not, rather than refuses.';

create function trax_router.is_cancelled(
    failure trax_router.failure
)
returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select failure.state = '57014' and failure.message !~ '^PL/Proxy function [^:]*: \[[^\]]*\] REMOTE '
$$;
comment on function trax_router.is_cancelled(trax_router.failure) is
    'Internal. Returns whether the call of the router was cancelled, or its statement_timeout has passed, rather than that of a shard: nothing more may be called.';

create function trax_router.words_of_break(
    failure trax_router.failure
)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case
        -- The end of a session is no answer. The severity may be in any language.
        when failure.state ~ '^57P0' then coalesce(
            substring(failure.message from '^[^:]*: \[[^\]]*\] REMOTE [^:]*: (.*)$'),
            substring(failure.message from '^PL/Proxy function [^:]*: (.*)$')
        )
        when failure.message ~ '^[^:]*: \[[^\]]*\] REMOTE [^:]*: ' then null
        else substring(failure.message from '^PL/Proxy function [^:]*: (.*)$')
    end
$$;
comment on function trax_router.words_of_break(trax_router.failure) is
    'Internal. Returns what PL/Proxy or the server said when a connection could not be made or broke; null when the shard has answered.';

create function trax_router.may_ask_again(
    failure trax_router.failure
)
returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select trax_router.words_of_break(failure) is not null and not trax_router.has_no_connection(failure.message)
$$;
comment on function trax_router.may_ask_again(trax_router.failure) is
    'Internal. Returns whether a connection broke, perhaps because the server was restarted since the call before: who only reads asks once more.';

create function trax_router.raise(
    failure trax_router.failure,
    done text default null
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    remote constant text := substring(failure.message from '^[^:]*: \[[^\]]*\] REMOTE [^:]*: (.*)$');
    broken constant text := trax_router.words_of_break(failure);
begin
    -- No shard was asked.
    if failure is null then
        perform trax_router.refuse_number(null, null);
    end if;
    if remote is not null and broken is null then
        failure.message := remote;
        failure.detail := substring(failure.detail from '^Remote detail: (.*)$');
        failure.hint := substring(failure.hint from '^Remote hint: (.*)$');
    elsif trax_router.was_not_reached(failure.message) then
        failure.state := '08001';
        failure.message := format('shard %s cannot be reached', failure.shard);
        failure.detail := 'Nothing was done there. ' || rtrim(substring(broken from ': (.*)$'), E' \n');
        failure.hint := format(
            'The other shards work. To see its address: select * from trax_router.shards(); if it is down on purpose: select trax_router.close_shard(%s, ''why'')',
            failure.shard
        );
    elsif trax_router.state_of_refusal(failure.message) is not null then
        failure.state := trax_router.state_of_refusal(failure.message);
        failure.message := format('shard %s refuses the connection', failure.shard);
        failure.detail := 'Nothing was done there. ' || rtrim(substring(broken from ': (.*)$'), E' \n');
        failure.hint := format(
            'The role and the database must exist there, and its pg_hba.conf must let the role in; to see its address: select * from trax_router.shards() where number = %s',
            failure.shard
        );
    elsif broken is not null then
        failure.state := '08007';
        failure.message := format('the connection to shard %s broke', failure.shard);
        failure.detail := 'The result of the call is not known. ' || rtrim(broken, E' \n');
        failure.hint := 'Check before you repeat the call; with a unique_key an enqueue can be repeated.';
    end if;
    if trax_router.is_cancelled(failure) then
        failure.detail := format('The result of the call on shard %s is not known.', failure.shard);
    end if;
    failure.detail := concat_ws(' ', nullif(failure.detail, ''), done);
    if failure.hint <> '' then
        raise exception using
            errcode = failure.state, message = failure.message, detail = failure.detail, hint = failure.hint;
    elsif failure.detail <> '' then
        raise exception using errcode = failure.state, message = failure.message, detail = failure.detail;
    end if;
    raise exception using errcode = failure.state, message = failure.message;
end;
$$;
comment on function trax_router.raise(trax_router.failure, text) is
    'Internal. Raises the error of a call to a shard with its own SQLSTATE, DETAIL and HINT; done is what other shards did before it.';

create function trax_router.look_further(
    failure trax_router.failure,
    before trax_router.failure
)
returns trax_router.failure
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The shard has no such manifest, and another may have it.
    if failure.state = '42704' then
        return case when before is null then failure else before end;
    end if;
    -- An unreachable shard may have it, if no other has. The first of them is where it was last
    -- seen.
    if trax_router.is_away(failure) then
        return case when trax_router.is_away(before) then before else failure end;
    end if;
    perform trax_router.raise(failure);
end;
$$;
comment on function trax_router.look_further(trax_router.failure, trax_router.failure) is
    'Internal. Returns the error that counts if no shard has a manifest; raises what asking another does not mend.';

create function trax_router.done_on(
    shards int[]
)
returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when shards <> '{}' then 'Done on the shards ' || array_to_string(shards, ', ') || '; their changes stay.'
    end
$$;
comment on function trax_router.done_on(int[]) is
    'Internal. Returns words about the shards that did what another refused; null when there is none.';
