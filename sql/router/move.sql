-- A group at work goes to another shard: new jobs at once, what waits batch by batch, what runs
-- ends where it is.

create function trax_router.depart(
    shard int,
    text,
    int,
    int
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
    select d.batch, d.to_shard, d.count, d.cargo, d.is_over from trax.depart($2::text, $3::int, $4::int) d;
$$;
comment on function trax_router.depart(int, text, int, int) is
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

create function trax_router.begin_move(
    group_name text,
    to_shard int
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_variable
declare
    sources int[];
    source int;
    is_new boolean;
    failure trax_router.failure;
begin
    perform trax_router.refuse_group_name(group_name);
    if to_shard is null or to_shard not in (select trax_router.numbers()) then
        perform trax_router.refuse_number(to_shard, null);
    end if;
    -- Whoever has placed something and not ended is waited for.
    lock table trax_router.group_placement, trax_router.place in access exclusive mode;
    sources := array(select trax_router.shards_of_settings(group_name));
    is_new := sources <> array[to_shard];
    -- Where a move that was broken off was to go, its settings are; where it came from it is off.
    if is_new
        and not trax_router.copy_settings(group_name, to_shard, sources)
        and to_shard in (select unnest(p.moves_from) from trax_router.group_placement p where p.group_name = group_name)
    then
        perform trax_router.configure_group(to_shard, group_name, 0, 0, true, 1);
    end if;
    -- Such a move has left some of it also where it is to be now: what is on its way from there.
    sources := array(
        select s from unnest(sources) s where s <> to_shard
        union
        select unnest(p.moves_from) from trax_router.group_placement p where p.group_name = group_name
    );
    foreach source in array sources loop
        begin
            perform trax_router.refuse_ties(source, group_name);
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := source;
                perform trax_router.raise(failure);
        end;
    end loop;
    insert into trax_router.group_placement as p (group_name, shard, moves_from)
    values (group_name, to_shard, sources)
    on conflict on constraint group_placement_pkey do update
    set shard = excluded.shard, placed_at = excluded.placed_at, moves_from = excluded.moves_from;
    insert into trax_router.move (source, target)
    select s, to_shard
    from unnest(sources) s
    where s <> to_shard
    on conflict do nothing;
end;
$$;
comment on function trax_router.begin_move(text, int) is
    'Internal. Sends the new jobs of a group to a shard, and writes down from which ones the others are to be carried.';

create function trax_router.carry(
    group_name text,
    to_shard int,
    out carried bigint,
    out outcome text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_variable
declare
    sources int[];
    placed int;
    source int;
    found_batch uuid;
    found_target int;
    jobs int;
    found_cargo jsonb;
    is_over boolean;
    is_all_over boolean := true;
    has_come boolean;
    asked int;
    failure trax_router.failure;
begin
    carried := 0;
    outcome := 'waits';
    -- In this order: whoever has the second lock waits for no other here.
    lock table trax_router.group_placement in access share mode;
    -- Who looks for a job by its id, or for a manifest, waits until it is here or there.
    lock table trax_router.move in access exclusive mode;
    select p.moves_from, p.shard
    into sources, placed
    from trax_router.group_placement p
    where p.group_name = group_name;
    if placed is distinct from to_shard then
        raise exception 'group "%" is no longer on its way to shard %', group_name, to_shard
            using errcode = '55000',
                detail = format('Somebody has moved it to shard %s since.', placed),
                hint = format('If shard %s is right, move it there: call trax_router.move_group(%L, %s, null)', to_shard, group_name, to_shard);
    end if;
    foreach source in array coalesce(sources, '{}') loop
        begin
            asked := source;
            select d.batch, d.to_shard, d.count, d.cargo, d.is_over
            into found_batch, found_target, jobs, found_cargo, is_over
            from trax_router.depart(source, group_name, nullif(to_shard, source), 1000) d;
            if found_batch is not null then
                asked := found_target;
                has_come := trax_router.arrive(found_target, source, group_name, found_batch, found_cargo);
                asked := source;
                perform trax_router.end_departure(source, group_name, found_batch);
                carried := carried + case when has_come then jobs else 0 end;
                outcome := 'carries';
            end if;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := asked;
                perform trax_router.raise(failure, format(
                    'Group "%s" is on its way to shard %s, and nothing of it is lost; move it again to go on.', group_name, to_shard
                ));
        end;
        is_all_over := is_all_over and is_over;
    end loop;
    if is_all_over then
        update trax_router.group_placement p
        set moves_from = null
        where p.group_name = group_name;
        outcome := 'ends';
    end if;
end;
$$;
comment on function trax_router.carry(text, int) is
    'Internal. Carries the next batch of a group from each shard that it leaves; returns how many jobs that were, and whether it carries, waits for what runs there, or ends, because nothing is left.';

-- Without settings of its own, which would forbid it to commit.
create procedure trax_router.move_group(
    group_name text,
    shard int,
    out carried bigint
)
language plpgsql
as $$
#variable_conflict use_variable
declare
    more record;
    pause pg_catalog.float8 := 0.01;
begin
    carried := 0;
    commit;
    perform trax_router.begin_move(group_name, shard);
    loop
        commit;
        select *
        into more
        from trax_router.carry(group_name, shard);
        carried := carried operator(pg_catalog.+) more.carried;
        exit when more.outcome operator(pg_catalog.=) 'ends';
        commit;
        -- What runs ends where it is; what it leaves to be retried is carried then.
        if more.outcome operator(pg_catalog.=) 'waits' then
            perform pg_catalog.pg_sleep(pause);
            pause := least(pause operator(pg_catalog.*) 1.5, 0.5);
        else
            pause := 0.01;
        end if;
    end loop;
end;
$$;
comment on procedure trax_router.move_group(text, int) is
    'Moves a group that may be at work to a shard: its new jobs go there at once, what waits is carried over with its id, what runs ends where it is. Its manifests follow when none of their jobs runs. Returns when all is there, and how many jobs it has carried; broken off at any moment, call it again. Refused inside a transaction block.';
