-- Moves a group that is at work to another shard: new jobs go there at once, waiting jobs move in
-- batches, and running jobs end where they are.

create function trax_router.depart(
    shard int,
    text,
    int,
    int,
    bigint
)
returns table (
    batch uuid,
    to_shard int,
    count int,
    cargo jsonb,
    is_over boolean
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select d.batch, d.to_shard, d.count, d.cargo, d.is_over from trax.depart($2::text, $3::int, $4::int, $5::bigint) d;
$$;
comment on function trax_router.depart(int, text, int, int, bigint) is
    'Internal. Calls trax.depart() on a shard.';

create function trax_router.arrive(
    shard int,
    int,
    text,
    uuid,
    jsonb
)
returns boolean
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.arrive($2::int, $3::text, $4::uuid, $5::jsonb);
$$;
comment on function trax_router.arrive(int, int, text, uuid, jsonb) is
    'Internal. Calls trax.arrive() on a shard.';

create function trax_router.end_departure(
    shard int,
    text,
    uuid
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.end_departure($2::text, $3::uuid);
$$;
comment on function trax_router.end_departure(int, text, uuid) is
    'Internal. Calls trax.end_departure() on a shard.';

create function trax_router.refuse_ties(
    shard int,
    text
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.refuse_ties($2::text);
$$;
comment on function trax_router.refuse_ties(int, text) is
    'Internal. Refuses a group of which a manifest on a shard depends on one of another group, or the other way round.';

create function trax_router.roles_of_group(
    shard int,
    text
)
returns setof text
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select q.run_as from trax.work_queue q where q.group_name = $2::text and q.run_as is not null
    union select l.run_as from trax.lease l where l.group_name = $2::text and l.run_as is not null
    union select m.run_as from trax.manifest m where m.group_name = $2::text and m.run_as is not null;
$$;
comment on function trax_router.roles_of_group(int, text) is
    'Internal. Returns the roles as which statements of a group run on a shard.';

create function trax_router.missing_roles(
    shard int,
    text[]
)
returns setof text
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select n from pg_catalog.unnest($2::text[]) n where n not in (select r.rolname from pg_catalog.pg_roles r);
$$;
comment on function trax_router.missing_roles(int, text[]) is
    'Internal. Returns those of these roles that do not exist on the server of a shard.';

create function trax_router.begin_move(
    group_name text,
    to_shard int,
    gather boolean default false
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_variable
declare
    default_settings constant jsonb :=
        '{"max_active_jobs": null, "priority": 0, "enabled": true, "max_per_key": 1, "rate": null, "max_waiting": null, "overflow": "reject", "applied": false}';
    known trax_router.group_on_shard[];
    target trax_router.group_on_shard;
    one trax_router.group_on_shard;
    homes int[];
    left_from int[];
    sources int[];
    source int;
    settings jsonb;
    asked int;
    roles text[];
    missing text;
    failure trax_router.failure;
begin
    perform trax_router.refuse_group_name(group_name);
    if to_shard is null or to_shard not in (select trax_router.numbers()) then
        perform trax_router.refuse_number(to_shard, null);
    end if;
    -- All shards are asked before any lock is waited for here, and the target before any change.
    known := array(select s from trax_router.survey(group_name, null) s);
    select k.*
    into target
    from unnest(known) k
    where k.shard = to_shard;
    if target.failure is not null then
        perform trax_router.raise(target.failure);
    end if;
    foreach one in array known loop
        begin
            if one.shard <> to_shard and one.has_work then
                asked := one.shard;
                perform trax_router.refuse_ties(asked, group_name);
                roles := array(select r from trax_router.roles_of_group(asked, group_name) r);
                asked := to_shard;
                missing := case
                    when roles <> '{}' then (select min(r) from trax_router.missing_roles(asked, roles) r)
                end;
                if missing is not null then
                    raise exception 'role "%" does not exist on shard %', missing, to_shard
                        using errcode = '42704',
                            detail = format('Statements of group "%s" run as this role. Nothing has moved.', group_name),
                            hint = format('Create it there: create role %I login; then move the group again.', missing);
                end if;
            end if;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := asked;
                perform trax_router.raise(failure);
        end;
    end loop;
    perform trax_router.hold_placement();
    if gather is not true and trax_router.is_spread(group_name) then
        raise exception 'group "%" is spread over all shards', group_name
            using errcode = '55000',
                detail = format('A move would end its spreading: all its jobs would be on shard %s.', to_shard),
                hint = format('If they should be: call trax_router.move_group(%L, %s, null, gather => true)', group_name, to_shard);
    end if;
    homes := array(select trax_router.shards_of_settings(group_name));
    left_from := coalesce(
        (select p.moves_from from trax_router.group_placement p where p.group_name = group_name), '{}'
    );
    -- The current rows of its home and the target: another move may have come between.
    known := array(
        select k
        from unnest(known) k
        where k.shard <> all (homes || to_shard)
        union all
        select s
        from trax_router.survey(group_name, homes || to_shard) s
    );
    select k.*
    into target
    from unnest(known) k
    where k.shard = to_shard;
    if target.failure is not null then
        perform trax_router.raise(target.failure);
    end if;
    if homes <> array[to_shard] then
        foreach one in array known loop
            continue when one.shard = to_shard
                or one.shard <> all (homes);
            if one.settings is not null then
                settings := one.settings;
                exit;
            end if;
            -- Returns from a shard that cannot be reached now. The target has its settings, and is
            -- disabled, unless all of it has left there and the mover ended before that was
            -- written down.
            if one.failure is not null and to_shard = any (left_from) and not target.has_left then
                settings := '{"enabled": true}';
            elsif one.failure is not null then
                perform trax_router.raise(one.failure);
            end if;
        end loop;
    end if;
    if settings is null and (target.settings is null or homes <> array[to_shard] and to_shard = any (left_from)) then
        settings := default_settings;
    end if;
    if settings is not null then
        perform trax_router.give_settings(to_shard, group_name, settings);
    end if;
    -- Any shard may have jobs that a caller placed there with an old map. The target may have a
    -- batch that was on its way from there when a move was interrupted.
    sources := array(
        select k.shard
        from unnest(known) k
        where k.departs
            or k.shard <> to_shard and (k.settings is not null or k.has_work or k.has_rest)
            or k.failure is not null and k.shard = any (homes)
        union
        select unnest(left_from)
    );
    perform trax_router.put_placement(group_name, to_shard, sources);
    insert into trax_router.move (source, target)
    select s, to_shard
    from unnest(sources) s
    where s <> to_shard
    on conflict do nothing;
end;
$$;
comment on function trax_router.begin_move(text, int, boolean) is
    'Internal. Sends the new jobs of a group to a shard, and writes down from which ones the others are to be carried. Refused, with nothing changed, when that shard is away, or when the group is spread and gather is not true.';

create function trax_router.carry(
    group_name text,
    to_shard int,
    without int[] default '{}',
    out carried bigint,
    out outcome text,
    out away int[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_variable
declare
    sources int[];
    left_from int[];
    placed int;
    placed_at timestamptz;
    source int;
    found_batch uuid;
    found_target int;
    jobs int;
    found_cargo jsonb;
    is_over boolean;
    has_come boolean;
    asked int;
    failure trax_router.failure;
begin
    carried := 0;
    outcome := 'waits';
    away := '{}';
    begin
        -- In this order: the holder of the second lock waits for no other lock here.
        lock table trax_router.group_placement in access share mode;
        -- A search for a job by its id, or for a manifest, waits until it is on either shard.
        lock table trax_router.move in access exclusive mode;
    exception
        when lock_not_available then
            return;
    end;
    select coalesce(p.moves_from, '{}'), p.shard, p.placed_at
    into sources, placed, placed_at
    from trax_router.group_placement p
    where p.group_name = group_name;
    if placed is distinct from to_shard then
        raise exception 'group "%" is no longer on its way to shard %', group_name, to_shard
            using errcode = '55000',
                detail = format('It has since been moved to shard %s.', placed),
                hint = format('If shard %s is right, move it there: call trax_router.move_group(%L, %s, null)', to_shard, group_name, to_shard);
    end if;
    left_from := sources;
    -- Unreachable shards are asked again when nothing is left on the others.
    foreach source in array sources loop
        continue when source = any (without)
            and not sources <@ without;
        is_over := false;
        begin
            asked := source;
            select d.batch, d.to_shard, d.count, d.cargo, d.is_over
            into found_batch, found_target, jobs, found_cargo, is_over
            from trax_router.depart(source, group_name, nullif(to_shard, source), 1000, trax_router.in_micros(placed_at)) d;
            if found_batch is not null then
                -- A shard names only targets that the owner of the router named.
                if found_target <> all (to_shard || array(select m.target from trax_router.move m where m.source = source)) then
                    raise exception 'shard % sends group "%" to shard %, where it was never moved to', source, group_name, found_target
                        using errcode = '55000',
                            detail = 'No move of this router has made the batch.',
                            hint = format('Look at it there: select * from trax.departure where group_name = %L', group_name);
                end if;
                -- The batch belongs to an interrupted move: its target is not the group's home
                -- either.
                if found_target <> to_shard and found_target <> all (left_from) then
                    left_from := left_from || found_target;
                    insert into trax_router.move (source, target)
                    values (found_target, to_shard)
                    on conflict do nothing;
                end if;
                asked := found_target;
                has_come := trax_router.arrive(found_target, source, group_name, found_batch, found_cargo);
                carried := carried + case when has_come then jobs else 0 end;
                outcome := 'carries';
                asked := source;
                perform trax_router.end_departure(source, group_name, found_batch);
                perform trax_router.remember(m ->> 'name', found_target)
                from jsonb_array_elements(found_cargo -> 'manifests') m;
            end if;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := asked;
                if trax_router.is_away(failure) and not sources <@ (without || away || source) then
                    away := away || source;
                -- The lock's holder has not ended its transaction there: try again the next time.
                elsif failure.state <> '55P03' then
                    perform trax_router.raise(failure, format(
                        'Group "%s" is on its way to shard %s, and nothing of it is lost; move it again to continue.', group_name, to_shard
                    ));
                end if;
        end;
        if is_over then
            left_from := array_remove(left_from, source);
        end if;
    end loop;
    if left_from = '{}' then
        outcome := 'ends';
    end if;
    if left_from <> sources or left_from = '{}' then
        update trax_router.group_placement p
        set moves_from = nullif(left_from, '{}')
        where p.group_name = group_name;
    end if;
end;
$$;
comment on function trax_router.carry(text, int, int[]) is
    'Internal. Carries the next batch of a group from each shard that it leaves, first without some that were away; returns how many jobs that were, whether it carries, waits for what runs or is locked there, or ends, because nothing is left, and the shards from which, or from there to which, it could not carry, while others are left.';

-- Without settings of its own, which would not allow it to commit.
create procedure trax_router.move_group(
    group_name text,
    shard int,
    out carried bigint,
    gather boolean default false
)
language plpgsql
as $$
#variable_conflict use_variable
declare
    more record;
    without int[] := '{}';
    pause pg_catalog.float8 := 0.01;
begin
    carried := 0;
    commit;
    perform trax_router.begin_move(group_name, shard, gather);
    loop
        commit;
        select *
        into more
        from trax_router.carry(group_name, shard, without);
        carried := carried operator(pg_catalog.+) more.carried;
        exit when more.outcome operator(pg_catalog.=) 'ends';
        commit;
        without := pg_catalog.array_cat(without, more.away);
        -- Running jobs end where they are; their retries are carried afterwards.
        if more.outcome operator(pg_catalog.=) 'waits' then
            perform pg_catalog.pg_sleep(pause);
            pause := least(pause operator(pg_catalog.*) 1.5, 0.5);
        else
            pause := 0.01;
        end if;
    end loop;
end;
$$;
comment on procedure trax_router.move_group(text, int, boolean) is
    'Moves a group that may be at work to a shard: its new jobs go there at once, what waits is carried over with its id, what runs ends where it is. Its manifests follow when none of their jobs runs. Returns when all is there, and how many jobs it has carried; broken off at any moment, call it again. Refused inside a transaction block, when the shard is away, and for a spread group unless gather is true, which ends its spreading.';

create function trax_router.departed(
    shard int,
    text[],
    text
)
returns table (
    manifest text,
    of_group text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select d.manifest, d.of_group from trax.departed($2::text[], $3::text) d;
$$;
comment on function trax_router.departed(int, text[], text) is
    'Internal. Calls trax.departed() on a shard.';

create function trax_router.refuse_departed(
    manifests text[],
    group_name text
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    manifest text;
    of_group text;
    failure trax_router.failure;
begin
    -- No shard is asked while no group moves.
    for shard in
        select distinct s
        from trax_router.group_placement p
        cross join unnest(p.moves_from) s
        where group_name is null
            or p.group_name = group_name
        order by s
    loop
        begin
            select d.manifest, d.of_group
            into manifest, of_group
            from trax_router.departed(shard, manifests, group_name) d;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                -- A call that needs an unreachable shard reports it itself.
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
        end;
        if of_group is not null then
            raise exception '% is on its way from shard % to another',
                case when manifest is null then format('a part of group "%s"', of_group) else format('manifest "%s"', manifest) end, shard
                using errcode = '55000',
                    detail = format('The move of group "%s" was interrupted.', of_group),
                    hint = format('Move the group again: call trax_router.move_group(%L, %s, null)', of_group, trax_router.shard_of_group(of_group));
        end if;
    end loop;
end;
$$;
comment on function trax_router.refuse_departed(text[], text) is
    'Internal. Refuses manifests, or a group, of which something has left one shard and is not known to be on another.';
