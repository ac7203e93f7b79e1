-- Where groups are, changed by the owner of the router.

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
    union select d.group_name from trax.departure d;
$$;
comment on function trax_router.known_groups(int) is
    'Internal. Returns the groups that have settings, manifests, jobs or unresolved dead letters on a shard.';

create function trax_router.read_group(
    shard int,
    text
)
returns table (
    max_active_jobs int,
    priority int,
    enabled boolean,
    max_per_key int
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select g.max_active_jobs, g.priority::int as priority, g.enabled, g.max_per_key
    from trax.manifest_group g
    where g.name = $2::text;
$$;
comment on function trax_router.read_group(int, text) is
    'Internal. Returns the settings of a group on a shard, if it has any there.';

create function trax_router.copy_settings(
    group_name text,
    shard int,
    sources int[] default null
)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    other int;
begin
    for other in select n from unnest(coalesce(sources, array(select trax_router.numbers()))) n where n <> shard loop
        perform trax_router.configure_group(
            shard, group_name, coalesce(g.max_active_jobs, 0), g.priority, g.enabled, coalesce(g.max_per_key, 0)
        )
        from trax_router.read_group(other, group_name) g;
        if found then
            return true;
        end if;
    end loop;
    return false;
end;
$$;
comment on function trax_router.copy_settings(text, int, int[]) is
    'Internal. Gives a group on one shard the settings that it has on the first other that has some, of these or of all; returns whether one has.';

create function trax_router.spread_places()
returns table (
    shard int,
    places int,
    moved int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
    before jsonb;
    here int;
begin
    -- Whoever has placed something and not ended is waited for, and nobody places meanwhile.
    lock table trax_router.group_placement, trax_router.key_placement, trax_router.place in access exclusive mode;
    before := (select jsonb_object_agg(p.place, p.shard) from trax_router.place p);
    -- From those that have too many, the last of theirs, to those that have too few.
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
    -- A group that is at work stays: all of it is on one shard.
    for here in
        select distinct p.shard
        from trax_router.place p
        where (before -> p.place::text)::int <> p.shard
        union
        select distinct (before -> p.place::text)::int
        from trax_router.place p
        where (before -> p.place::text)::int <> p.shard
        order by 1
    loop
        insert into trax_router.group_placement (group_name, shard)
        select g.group_name, here
        from trax_router.known_groups(here) g
        join trax_router.place p on p.place = trax_router.place_of(g.group_name)
        where p.shard <> here
            and not trax_router.is_spread(g.group_name)
        on conflict do nothing;
    end loop;
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

create function trax_router.has_group(
    shard int,
    text
)
returns boolean
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select exists (select from trax.manifest m where m.group_name = $2::text)
        or exists (select from trax.work_queue q where q.group_name = $2::text)
        or exists (select from trax.lease l where l.group_name = $2::text)
        or exists (select from trax.departure d where d.group_name = $2::text);
$$;
comment on function trax_router.has_group(int, text) is
    'Internal. Returns whether a group has manifests or jobs that wait or run on a shard.';

create function trax_router.place_group(
    group_name text,
    shard int
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_variable
declare
    other int;
    is_new boolean;
begin
    perform trax_router.refuse_group_name(group_name);
    if shard is null or shard not in (select trax_router.numbers()) then
        perform trax_router.refuse_number(shard, null);
    end if;
    lock table trax_router.group_placement, trax_router.place in access exclusive mode;
    perform trax_router.refuse_moving(group_name);
    is_new := shard is distinct from trax_router.shard_of_group(group_name) or trax_router.is_spread(group_name);
    for other in select n from trax_router.numbers() n where n <> shard loop
        if trax_router.has_group(other, group_name) then
            raise exception 'group "%" is at work on shard %', group_name, other
                using errcode = '55000',
                    detail = 'It has manifests there, or jobs that wait or run, and would be on two shards.',
                    hint = format('Move it with what it has: call trax_router.move_group(%L, %s, null)', group_name, shard);
        end if;
    end loop;
    if is_new then
        perform trax_router.copy_settings(group_name, shard);
    end if;
    insert into trax_router.group_placement as p (group_name, shard)
    values (group_name, shard)
    on conflict on constraint group_placement_pkey do update set shard = excluded.shard, placed_at = excluded.placed_at;
end;
$$;
comment on function trax_router.place_group(text, int) is
    'Puts a group on a shard, instead of where the hash of its name says, or of one that was spread. Refused while it has manifests or live jobs on another.';

create function trax_router.spread_group(
    group_name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_variable
declare
    shard int;
begin
    perform trax_router.refuse_group_name(group_name);
    lock table trax_router.group_placement, trax_router.place in access exclusive mode;
    perform trax_router.refuse_moving(group_name);
    for shard in select * from trax_router.numbers() loop
        perform trax_router.copy_settings(group_name, shard)
        where not exists (
            select
            from trax_router.read_group(shard, group_name)
        );
    end loop;
    insert into trax_router.group_placement as p (group_name, shard)
    values (group_name, null)
    on conflict on constraint group_placement_pkey do update set shard = null, placed_at = excluded.placed_at;
end;
$$;
comment on function trax_router.spread_group(text) is
    'Spreads a group over all shards: its jobs go by their concurrency key, else their unique key, else anywhere, and its limits count on each shard for itself. Jobs and manifests that exist stay where they are.';

create function trax_router.refuse_group_name(
    group_name text
)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if group_name is null or octet_length(group_name) not between 1 and 255 then
        raise exception 'argument "group_name" must be a name'
            using errcode = '22023',
                detail = format('group_name is %s.', coalesce(quote_literal(left(group_name, 100)), 'null')),
                hint = 'Specify a name of 1 to 255 bytes: group_name => ''reports''';
    end if;
end;
$$;
comment on function trax_router.refuse_group_name(text) is
    'Internal. Refuses what cannot be the name of a group.';

create function trax_router.refuse_moving(
    group_name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    if trax_router.moves(group_name) then
        raise exception 'group "%" is being moved', group_name
            using errcode = '55000',
                detail = 'A move to another shard has begun and has not ended.',
                hint = format('Let it end, or end it: call trax_router.move_group(%L, %s, null)', group_name, trax_router.shard_of_group(group_name));
    end if;
end;
$$;
comment on function trax_router.refuse_moving(text) is
    'Internal. Refuses a group that is between two shards.';
