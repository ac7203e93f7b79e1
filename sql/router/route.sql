-- route: which shard each function goes to that a producer or an operator calls.
--
-- trax_router.NAME calls a function on a shard. trax.NAME finds the shard: it has the arguments of
-- the function in the extension trax, its result and its comment. Both are made here from the
-- function's head, which scripts/install puts before this script: a function of sql/api without its
-- body. Workers claim from the shards directly, so the functions of a worker have no route.

do $make$
declare
    -- The error of a shard, in the handler of a call.
    caught constant text := 'get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;';
    -- The shard of a job.
    of_job constant text := 'trax_router.shard_of_group(group_name, coalesce(concurrency_key, unique_key), tried)';
    of_job_or_batch constant text := format(
        'case when batch is null then %s else trax_router.shard_of_batch(batch, group_name, coalesce(concurrency_key, unique_key), tried) end',
        of_job
    );
    caught_in_loop constant text := replace(caught, E'\n', E'\n        ');
    f record;
    own_name text;
    invocation text;
    ask text;
    declared text;
    body text;
begin
    for f in
        select
            r.name, r.route, r.place, r.own, r.reads, p.oid,
            format_type(p.prorettype, null) as result_type,
            pg_get_function_arguments(p.oid) as arguments,
            pg_get_function_result(p.oid) as result,
            obj_description(p.oid, 'pg_proc') as comment,
            a.types, a.names, a.passed_on, a.passed, a.styles, c.columns
        from (
            values
                -- On one shard.
                ('acknowledge_dead_letter', 'one', 'trax_router.shard_that_has($1, true)', null, false),
                ('requeue_dead_letter', 'one', 'trax_router.shard_that_has($1, true)', null, false),
                ('cancel', 'one', 'trax_router.shard_that_has($1, false)', null, false),
                ('limit_queue_time', 'one', 'trax_router.shard_that_has($1, false)', null, false),
                ('run_now', 'one', 'trax_router.shard_that_has($1, false)', null, false),
                ('change_job', 'one', 'trax_router.shard_to_change($1, $5)', null, false),
                ('explain_job', 'one', 'trax_router.shard_that_has($1, false)', null, true),
                ('read_steps', 'one', 'trax_router.shard_that_has($1, false)', null, true),
                ('send_signal', 'one', 'trax_router.shard_that_has($1, false)', null, false),
                ('read_needs', 'one', 'trax_router.shard_that_has($1, false)', null, true),
                ('read_graph', 'one', 'trax_router.shard_that_has($1, false)', null, true),
                ('seal_batch', 'one', 'trax_router.shard_that_has($1, false)', null, false),
                ('fork', 'one', 'trax_router.shard_that_has($1, false)', null, false),
                ('acquire_token', 'one', 'trax_router.shard_of_token($1)', null, false),
                ('extend_token', 'one', 'trax_router.shard_of_token($1)', null, false),
                ('release_token', 'one', 'trax_router.shard_of_token($1)', null, false),
                ('consume_rate', 'one', 'trax_router.shard_of_rate($1, $2)', null, false),
                ('read_rate', 'one', 'trax_router.shard_of_rate($1, $2)', null, true),
                ('preview_cron', 'one', 'trax_router.any_shard()', null, true),
                -- On the shard of the group, in a spread group by a key, or on that of the batch.
                ('enqueue', 'group', of_job_or_batch, null, false),
                ('open_batch', 'group', of_job_or_batch, null, false),
                ('enqueue_sql', 'group', of_job, null, false),
                ('enqueue_graph', 'group', 'trax_router.shard_of_graph(document, unique_key, tried)', null, false),
                -- On the shard that has the manifest, which the router remembers.
                ('activate', 'manifest', 'remember($1, has_it)', null, false),
                ('cancel_manifest', 'manifest', 'remember($1, has_it)', null, false),
                ('disable_manifest', 'manifest', 'remember($1, has_it)', null, false),
                ('enable_manifest', 'manifest', 'remember($1, has_it)', null, false),
                ('explain_manifest', 'manifest', 'remember($1, has_it)', null, true),
                ('preview', 'manifest', 'remember($1, has_it)', null, true),
                ('trigger', 'manifest', 'remember($1, has_it)', null, false),
                ('unschedule', 'manifest', 'forget($1)', null, false),
                -- On each of several shards; counts are added.
                ('cancel_group', 'each', 'trax_router.shards_of_group($1)', null, false),
                ('trigger_group', 'each', 'trax_router.shards_of_group($1)', null, false),
                ('configure_group', 'each', 'trax_router.shards_of_settings($1)', null, false),
                ('configure_rate', 'each', 'trax_router.numbers()', null, false),
                ('close_rate', 'each', 'trax_router.numbers()', null, false),
                ('drop_rate', 'each', 'trax_router.numbers()', null, false),
                ('configure_task', 'each', 'trax_router.numbers()', null, false),
                ('reset_task', 'each', 'trax_router.numbers()', null, false),
                ('pause', 'each', 'trax_router.numbers()', null, false),
                ('resume', 'each', 'trax_router.numbers()', null, false),
                -- On all shards, with the number of its shard in each row; an unreachable shard has
                -- this row, and the router rows of its own.
                ('status', 'rows', '''shard'', case when failure.hint = '''' then ''cannot be reached'' else failure.message end, '
                    'false, coalesce(nullif(failure.hint, ''''), failure.message), shard', null, true),
                ('tick', 'rows', '''shard cannot be reached'', 0::bigint, shard', null, false),
                ('check', 'rows', '''every shard can be reached'', failure.message, shard', 'trax_router.violations()', true),
                ('diagnose', 'rows', '''shard_away'', ''critical'', failure.message, coalesce(nullif(failure.hint, ''''), ''start its server''), shard',
                    'trax_router.causes($1)', true),
                ('metrics', 'rows', '''trax_shard_up'', jsonb_build_object(''shard'', shard::text), 0::double precision', null, true),
                -- Another file of this folder finds the shards.
                ('apply', 'hand', null, null, false),
                ('enqueue_many', 'hand', null, null, false),
                ('get_jobs', 'hand', null, null, true),
                ('grant_access', 'hand', null, null, false),
                ('requeue_dead_letters', 'hand', null, null, false),
                ('revoke_access', 'hand', null, null, false),
                ('schedule', 'hand', null, null, false)
        ) r (name, route, place, own, reads)
        left join pg_proc p on p.pronamespace = 'trax'::regnamespace and p.proname = r.name
        cross join lateral (
            -- A role is sent by name, since its oid differs there. Values are sent as text, which
            -- must be parsed the same under any settings of the shard.
            select
                coalesce(string_agg(', ' || x.type, '' order by x.at), '') as types,
                coalesce(string_agg(format(', $%s', x.at), '' order by x.at), '') as names,
                coalesce(string_agg(format(', $%s', x.at + 1), '' order by x.at), '') as passed_on,
                coalesce(string_agg(format('%s => $%s::%s', p.proargnames[x.at], x.at + 1, x.cast), ', ' order by x.at), '') as passed,
                case when bool_or(x.type like 'timestamp%') then E'set datestyle = iso\n' else '' end
                    || case when bool_or(x.type = 'interval') then E'set intervalstyle = iso_8601\n' else '' end as styles
            from (
                select
                    t.at,
                    case when t.type = 'regrole'::regtype then 'text' else format_type(t.type, null) end as type,
                    case when t.type = 'regrole'::regtype then 'text::regrole' else format_type(t.type, null) end as cast
                from unnest(p.proargtypes) with ordinality t (type, at)
            ) x
        ) a
        cross join lateral (
            -- A time is sent as text in one format, an interval in seconds, whatever the shard's
            -- settings.
            select string_agg(
                case
                    when t.type = 'interval'::regtype
                        then format('(extract(epoch from called.%1$s)::text operator(pg_catalog.||) '' s'') as %1$s', p.proargnames[t.at])
                    when t.type = 'timestamptz'::regtype
                        then format('pg_catalog.to_jsonb(called.%1$s) operator(pg_catalog.#>>) ''{}'' as %1$s', p.proargnames[t.at])
                    else format('called.%s', p.proargnames[t.at])
                end,
                ', ' order by t.at
            ) as columns
            from unnest(p.proallargtypes) with ordinality t (type, at)
            where p.proargmodes[t.at] = 't'
        ) c
    loop
        if f.oid is null then
            raise exception 'sql/api has no function trax.%()', f.name;
        end if;
        -- A scalar in the select list is 10 % cheaper than one in FROM.
        own_name := f.name || case when f.reads then '_once' else '' end;
        invocation := format('trax.%s(%s)', f.name, f.passed);
        execute format(
            'create function trax_router.%s(shard integer%s)
returns %s
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
%sas $$
    connect trax_router.address($1);
    select %s;
$$',
            own_name, f.types, f.result, f.styles,
            case when f.columns is null then invocation else format('%s from %s called', f.columns, invocation) end
        );
        execute format(
            'comment on function trax_router.%s(integer%s) is %L',
            own_name, f.types, format('Internal. Calls trax.%s() on a shard.', f.name)
        );
        if f.reads then
            execute format(
                'create function trax_router.%1$s(shard integer%2$s)
returns %3$s
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.%4$s(%5$s) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.%4$s(%5$s) called;
end;
$$',
                f.name, f.types, f.result, own_name, '$1' || f.passed_on
            );
            execute format(
                'comment on function trax_router.%s(integer%s) is %L',
                f.name, f.types, format('Internal. Calls trax.%s() on a shard, once more when the connection broke.', f.name)
            );
        end if;
        execute format('drop function %s', f.oid::regprocedure);
        continue when f.route = 'hand';

        invocation := format('trax_router.%s(shard%s)', f.name, f.names);
        ask := case
            when f.columns is null and f.result_type = 'void' then format('perform %s;', invocation)
            when f.columns is null then format('result := %s;', invocation)
            when f.name = 'metrics' then format(
                'return query select called.name, called.labels || %1$s, called.value from %2$s called;
            return query select ''trax_shard_up'', %1$s, 1::double precision;',
                'jsonb_build_object(''shard'', shard::text)', invocation
            )
            when f.route = 'rows' then format('return query select called.*, shard from %s called;', invocation)
            else format('return query select called.* from %s called;', invocation)
        end;
        declared := '    failure trax_router.failure;
' || case when ask like 'result %' then format('    result %s;%s', f.result_type, E'\n') else '' end;
        case f.route
        when 'one' then
            declared := declared || format('    shard constant integer := %s;%s', f.place, E'\n');
            body := 'begin
    {ask}
    {return}
exception
    when others or query_canceled then
        {caught}
        perform trax_router.raise(failure);
end;';
        when 'group' then
            -- Rows are returned without leaving the loop.
            if ask not like 'result %' then
                ask := ask || E'\n            return;';
            end if;
            declared := declared || format('    tried integer[] := ''{}'';%s    shard integer := %s;%s', E'\n', f.place, E'\n');
            body := '-- A job that may run anywhere goes to another shard when this one is away.
begin
    loop
        begin
            {ask}
            {return}
        exception
            when others or query_canceled then
                {caught in loop}
                tried := tried || shard;
                shard := null;
                if trax_router.was_not_reached(failure.message) then
                    shard := {place};
                end if;
                if shard is null then
                    perform trax_router.raise(failure);
                end if;
        end;
    end loop;
end;';
        when 'manifest' then
            declared := declared || '    shard integer;
    has_it integer;
    refusal trax_router.failure;
';
            body := 'begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
            {ask}
            has_it := shard;
            exit;
        exception
            when others or query_canceled then
                {caught in loop}
                refusal := trax_router.look_further(failure, refusal);
        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.{place};
    {return}
end;';
        when 'each' then
            declared := declared || '    shard integer;
    refusal trax_router.failure;
    done integer[] := ''{}'';
' || case when ask like 'result %' then format('    total %s := 0;%s', f.result_type, E'\n') else '' end;
            body := '-- Each for itself: the error of one is raised when the others have done it.
begin
    for shard in select * from {place} loop
        begin
            {ask}
            {add}
            done := done || shard;
        exception
            when others or query_canceled then
                {caught in loop}
                if refusal is null or trax_router.is_cancelled(failure) then
                    refusal := failure;
                end if;
                exit when trax_router.is_cancelled(failure);
        end;
    end loop;
    if refusal is not null then
        perform trax_router.raise(refusal, trax_router.done_on(done));
    end if;
    {return total}
end;';
        when 'rows' then
            if f.name = 'metrics' then
                declared := declared || '    shard integer;
';
            else
                f.result := regexp_replace(f.result, '\)$', ', shard integer)');
            end if;
            body := 'begin
    for shard in select * from trax_router.numbers() loop
        begin
            {ask}
        exception
            when others or query_canceled then
                {caught in loop}
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
                return query select {place};
        end;
    end loop;
    {own}
end;';
        end case;
        -- A line of which nothing is left goes.
        body := replace(body, '{caught in loop}', caught_in_loop);
        body := replace(body, '{caught}', caught);
        body := replace(body, '{place}', f.place);
        body := regexp_replace(body, '\n *\{own\}', case when f.own is null then '' else format(E'\n    return query select own.* from %s own;', f.own) end);
        if ask not like 'result %' then
            body := regexp_replace(body, '\n *\{(return|add|return total)\}', '', 'g');
        end if;
        body := replace(body, '{return}', 'return result;');
        body := replace(body, '{add}', 'total := total + result;');
        body := replace(body, '{return total}', 'return total;');
        body := replace(body, '{ask}', ask);
        execute format(
            'create function trax.%s(%s)
returns %s
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
%s%s
$$',
            f.name, f.arguments, f.result, declared, body
        );
        execute format('comment on function trax.%s is %L', f.name, f.comment);
    end loop;
end;
$make$;
