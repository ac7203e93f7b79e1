-- The places of groups, changed by the owner of the router.

create function trax_router.known_groups(
    shard int
)
returns table (
    group_name text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select g.name as group_name from trax.manifest_group g
    union select m.group_name from trax.manifest m
    union select q.group_name from trax.work_queue q
    union select l.group_name from trax.lease l
    union select d.group_name from trax.dead_letter d where d.status = 'awaiting_intervention'
    union select d.group_name from trax.departure d
    union select r.group_name from trax.unique_key k join trax.run r on r.job_id = k.job_id where k.ended;
$$;
comment on function trax_router.known_groups(int) is
    'Internal. Returns the groups that have settings, manifests, jobs, living keys of ended jobs or unresolved dead letters on a shard.';

create function trax_router.survey_group(
    shard int,
    text
)
returns table (
    settings jsonb,
    has_work boolean,
    has_rest boolean,
    departs boolean,
    has_left boolean
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select s.settings, s.has_work, s.has_rest, s.departs, s.has_left from trax.survey_group($2::text) s;
$$;
comment on function trax_router.survey_group(int, text) is
    'Internal. Calls trax.survey_group() on a shard.';

create type trax_router.group_on_shard as (
    shard int,
    settings jsonb,
    has_work boolean,
    has_rest boolean,
    departs boolean,
    has_left boolean,
    failure trax_router.failure
);
comment on type trax_router.group_on_shard is 'Internal. What a shard has of a group, or why it could not be asked.';

create function trax_router.survey(
    group_name text,
    shards int[]
)
returns setof trax_router.group_on_shard
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    known trax_router.group_on_shard;
    failure trax_router.failure;
begin
    for shard in select n from trax_router.numbers() n where coalesce(n = any (shards), true) loop
        known := null;
        known.shard := shard;
        begin
            select s.settings, s.has_work, s.has_rest, s.departs, s.has_left
            into known.settings, known.has_work, known.has_rest, known.departs, known.has_left
            from trax_router.survey_group(shard, group_name) s;
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
                known.failure := failure;
        end;
        return next known;
    end loop;
end;
$$;
comment on function trax_router.survey(text, int[]) is
    'Internal. Returns what these shards, or all, have of a group; of one that is away why it could not be asked.';

create function trax_router.survey_whole(
    group_name text
)
returns setof trax_router.group_on_shard
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    known trax_router.group_on_shard;
begin
    for known in select * from trax_router.survey(group_name, null) loop
        if known.failure is not null then
            perform trax_router.raise(known.failure);
        end if;
        return next known;
    end loop;
end;
$$;
comment on function trax_router.survey_whole(text) is
    'Internal. Returns what all shards have of a group; raises when one is away.';

create function trax_router.put_settings(
    shard int,
    text,
    jsonb,
    bigint
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.put_settings($2::text, $3::jsonb, $4::bigint);
$$;
comment on function trax_router.put_settings(int, text, jsonb, bigint) is
    'Internal. Calls trax.put_settings() on a shard.';

create function trax_router.in_micros(
    at timestamptz
)
returns bigint
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select (extract(epoch from at) * 1000000)::bigint
$$;
comment on function trax_router.in_micros(timestamptz) is
    'Internal. Returns a time as microseconds since 1970, which no setting of a session writes otherwise.';

create function trax_router.placing_at(
    group_name text
)
returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    -- Later than the previous move, even if the clock went back.
    select greatest(clock_timestamp(), max(p.placed_at) + interval '1 microsecond')
    from trax_router.group_placement p
    where p.group_name = $1
$$;
comment on function trax_router.placing_at(text) is
    'Internal. Returns the time at which a group is placed now: later than all times before.';

create function trax_router.give_settings(
    shard int,
    group_name text,
    settings jsonb
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
begin
    perform trax_router.put_settings(shard, group_name, settings, trax_router.in_micros(trax_router.placing_at(group_name)));
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
comment on function trax_router.give_settings(int, text, jsonb) is
    'Internal. Gives a group on one shard the settings that it has on another.';

create function trax_router.copy_settings(
    group_name text,
    shard int
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    known trax_router.group_on_shard;
    failure trax_router.failure;
begin
    for known in select * from trax_router.survey(group_name, array(select n from trax_router.numbers() n where n <> shard)) loop
        if known.settings is not null then
            perform trax_router.give_settings(shard, group_name, known.settings);
            return;
        end if;
        failure := case when failure is null then known.failure else failure end;
    end loop;
    -- An unreachable shard may have some.
    if failure is not null then
        perform trax_router.raise(failure);
    end if;
end;
$$;
comment on function trax_router.copy_settings(text, int) is
    'Internal. Gives a group on one shard the settings that it has on the first other that has some.';

create function trax_router.hold_placement()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
declare
    holders text;
    pids text;
begin
    for turn in 1..10 loop
        begin
            lock table trax_router.group_placement, trax_router.key_placement, trax_router.place in access exclusive mode;
            return;
        exception
            when lock_not_available then
                -- Sessions that wait behind this lock go first.
                perform pg_sleep(0.2);
        end;
    end loop;
    select string_agg(distinct format('process %s', l.pid), ', '), string_agg(distinct format('pg_terminate_backend(%s)', l.pid), ', ')
    into holders, pids
    from pg_locks l
    where l.relation in ('trax_router.group_placement'::regclass, 'trax_router.key_placement'::regclass, 'trax_router.place'::regclass)
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
        and l.granted
        and l.pid <> pg_backend_pid();
    raise exception 'transactions that hold the placement do not end'
        using errcode = '55P03',
            detail = format('Groups can be placed when all transactions that have read the placement have ended: %s.', coalesce(holders, 'a prepared transaction')),
            hint = format('Let them commit, or end them: select %s; then try again.', coalesce(pids, '* from pg_prepared_xacts'));
end;
$$;
comment on function trax_router.hold_placement() is
    'Internal. Waits for those who have placed something and not ended, and keeps others from placing until this transaction has ended.';

create function trax_router.put_placement(
    group_name text,
    shard int,
    moves_from int[] default null
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    insert into trax_router.group_placement as p (group_name, shard, placed_at, moves_from)
    values (group_name, shard, trax_router.placing_at(group_name), moves_from)
    on conflict on constraint group_placement_pkey do update
    set shard = excluded.shard, placed_at = excluded.placed_at, moves_from = excluded.moves_from;
    -- A session with an older snapshot finds the place changed: trax_router.refuse_old_snapshot().
    update trax_router.place p
    set shard = p.shard
    where p.place = trax_router.place_of(group_name);
end;
$$;
comment on function trax_router.put_placement(text, int, int[]) is
    'Internal. Writes down where a group is; null is spread.';

create function trax_router.spread_places()
returns table (
    shard int,
    places int,
    moved int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    before jsonb;
    here int;
    names text[];
    known_names text[] := '{}';
    known_shards int[] := '{}';
    failure trax_router.failure;
begin
    -- Before any session waits here: an unreachable shard is an error.
    perform trax_router.survey_whole(null);
    perform trax_router.hold_placement();
    before := (select jsonb_object_agg(p.place, p.shard) from trax_router.place p);
    -- From shards with too many, their last ones, to shards with too few.
    with wanted as (
        select
            s.number,
            (1024 * row_number() over w / count(*) over ())::int - (1024 * (row_number() over w - 1) / count(*) over ())::int as places
        from trax_router.shard s
        window w as (order by s.number)
    ),
    spare as (
        select p.place, row_number() over (order by p.shard, p.place) as turn
        from (
            select p.place, p.shard, row_number() over (partition by p.shard order by p.place) as nth
            from trax_router.place p
        ) p
        join wanted w on w.number = p.shard
        where p.nth > w.places
    ),
    need as (
        select w.number, row_number() over (order by n.n, w.number) as turn
        from wanted w,
            generate_series(1, w.places - (select count(*) from trax_router.place p where p.shard = w.number)::int) n
    )
    update trax_router.place p
    set shard = n.number
    from spare s
    join need n on n.turn = s.turn
    where p.place = s.place;
    -- A group that is at work stays, all of it on one shard. The router's known place counts first,
    -- even if a handler has placed jobs elsewhere; then its current place, in a database that
    -- joins.
    if exists (
        select
        from trax_router.place p
        where (before -> p.place::text)::int <> p.shard
    ) then
        for here in select * from trax_router.numbers() loop
            begin
                names := array(select g.group_name from trax_router.known_groups(here) g);
            exception
                when others or query_canceled then
                    get stacked diagnostics
                        failure.state = returned_sqlstate,
                        failure.message = message_text,
                        failure.detail = pg_exception_detail,
                        failure.hint = pg_exception_hint;
                    failure.shard := here;
                    perform trax_router.raise(failure);
            end;
            known_names := known_names || names;
            known_shards := known_shards || array_fill(here, array[cardinality(names)]);
        end loop;
        insert into trax_router.group_placement (group_name, shard)
        select k.group_name, k.shard
        from (
            select distinct on (g.group_name) g.group_name, g.shard, p.shard as new_shard
            from unnest(known_names, known_shards) g (group_name, shard)
            join trax_router.place p on p.place = trax_router.place_of(g.group_name)
            where not trax_router.is_spread(g.group_name)
            order by g.group_name, g.shard <> (before -> p.place::text)::int, g.shard
        ) k
        where k.shard <> k.new_shard
        on conflict do nothing;
    end if;
    perform trax_router.pin_keys(before);
    return query
    select
        s.number,
        count(p.place)::int,
        count(p.place) filter (where (before -> p.place::text)::int <> p.shard)::int
    from trax_router.shard s
    left join trax_router.place p on p.shard = s.number
    group by s.number
    order by s.number;
end;
$$;
comment on function trax_router.spread_places() is
    'Divides the 1,024 places evenly over the shards, moving as few as it can, and returns how many each has and how many of them are new there. Groups that have settings, manifests, jobs or unresolved dead letters stay where they are, and so do tokens that are held and the keys of live jobs of spread groups, until places are divided again; new groups, and the other jobs of spread ones, go by the new places.';
