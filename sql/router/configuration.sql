-- The configuration that all shards have: a new shard gets that of the others.

create function trax_router.configuration(
    shard int
)
returns table (
    stored jsonb
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select pg_catalog.jsonb_build_object(
        'tasks', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(t)) from trax.task t),
        'rates', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(r)) from trax.rate r),
        'closures', (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(c)) from trax.rate_closure c),
        'paused', exists (select from trax.instance i where i.paused_at is not null),
        'pause_reason', (select i.pause_reason from trax.instance i where i.paused_at is not null limit 1)
    ) as stored;
$$;
comment on function trax_router.configuration(int) is
    'Internal. Returns what is configured on every shard: the defaults of tasks, the rates and what is closed of them, and whether the scheduler is paused.';

create function trax_router.configurations(
    without int
)
returns setof jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    any_known boolean := false;
    failure trax_router.failure;
begin
    for shard in select n from trax_router.numbers() n where n <> without loop
        begin
            return next (select c.stored from trax_router.configuration(shard) c);
            any_known := true;
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
        end;
    end loop;
    if failure is not null and not any_known then
        perform trax_router.raise(failure);
    end if;
end;
$$;
comment on function trax_router.configurations(int) is
    'Internal. Returns what is configured on each reachable shard without this one; raises when all others are away.';

create function trax_router.configure(
    shard int,
    stored jsonb
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    entry jsonb;
begin
    for entry in select * from jsonb_array_elements(nullif(stored -> 'tasks', 'null')) loop
        if (entry ->> 'applied')::boolean then
            perform
            from trax_router.apply(
                shard,
                jsonb_build_object('tasks', jsonb_build_array(entry - array['created_at', 'updated_at', 'applied', 'source'])),
                false, false, entry ->> 'source'
            ) a;
        else
            perform trax_router.configure_task(
                shard, entry ->> 'name', (entry ->> 'max_retries')::int, (entry ->> 'retry_delay')::interval,
                (entry ->> 'backoff')::float8, (entry ->> 'retry_delay_max')::interval, (entry ->> 'timeout')::interval,
                entry ->> 'on_final_failure'
            );
        end if;
    end loop;
    for entry in select * from jsonb_array_elements(nullif(stored -> 'rates', 'null')) loop
        perform trax_router.configure_rate(
            shard, entry ->> 'name', (entry ->> 'allowed')::int, (entry ->> 'period')::interval, (entry ->> 'burst')::int
        );
    end loop;
    for entry in select * from jsonb_array_elements(nullif(stored -> 'closures', 'null')) loop
        perform trax_router.close_rate(
            shard, entry ->> 'rate', nullif(entry ->> 'key', ''), (entry ->> 'closed_until')::timestamptz
        );
    end loop;
end;
$$;
comment on function trax_router.configure(int, jsonb) is
    'Internal. Gives a shard the defaults of tasks, the rates and the closures that another has.';

create function trax_router.copy_configuration(
    shard int
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    known constant jsonb[] := array(select trax_router.configurations(shard));
    failure trax_router.failure;
begin
    perform trax_router.configure(shard, known[1]);
    -- A pause of single shards is theirs.
    perform trax_router.pause(shard, known[1] ->> 'pause_reason')
    from unnest(known) k
    having bool_and((k ->> 'paused')::boolean);
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
comment on function trax_router.copy_configuration(int) is
    'Internal. Gives a new shard the defaults of tasks, the rates and the closures that the first reachable other has, since all have the same, and pauses it when all others are paused.';
