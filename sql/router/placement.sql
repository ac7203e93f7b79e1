-- The shard of one group, as set by the owner of the router.

create function trax_router.place_group(
    group_name text,
    shard int
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    homes int[];
    known trax_router.group_on_shard;
    settings jsonb;
begin
    perform trax_router.refuse_group_name(group_name);
    if shard is null or shard not in (select trax_router.numbers()) then
        perform trax_router.refuse_number(shard, null);
    end if;
    perform trax_router.hold_group(group_name);
    homes := array(select trax_router.shards_of_settings(group_name));
    for known in select * from trax_router.survey_whole(group_name) loop
        continue when known.shard = shard;
        if known.has_work or known.has_rest or known.departs then
            raise exception 'group "%" is at work on shard %', group_name, known.shard
                using errcode = '55000',
                    detail = 'It has manifests there, jobs that wait or run, unresolved dead letters, or unique keys that ended jobs keep, and would be on two shards.',
                    hint = format('Move it with what it has: call trax_router.move_group(%L, %s, null)', group_name, shard);
        end if;
        -- A former shard of the group may have old settings.
        if known.shard = any (homes) then
            settings := coalesce(settings, known.settings);
        end if;
    end loop;
    if homes <> array[shard] and settings is not null then
        perform trax_router.give_settings(shard, group_name, settings);
    end if;
    perform trax_router.put_placement(group_name, shard);
end;
$$;
comment on function trax_router.place_group(text, int) is
    'Puts a group on a shard, instead of where the hash of its name says, or of one that was spread. Refused while it has manifests, live jobs, unresolved dead letters or keys of ended jobs on another.';

create function trax_router.spread_group(
    group_name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    known trax_router.group_on_shard[];
    homes int[];
begin
    perform trax_router.refuse_group_name(group_name);
    perform trax_router.hold_group(group_name);
    homes := array(select trax_router.shards_of_settings(group_name));
    known := array(select s from trax_router.survey_whole(group_name) s);
    -- Its home has the settings; a former shard may have old ones.
    perform trax_router.give_settings(k.shard, group_name, s.settings)
    from unnest(known) k
    cross join (
        select h.settings
        from unnest(known) h
        where h.settings is not null
            and h.shard = any (homes)
        order by h.shard
        limit 1
    ) s
    where k.settings is null
        or k.shard <> all (homes);
    perform trax_router.pin_group(k.shard, group_name)
    from unnest(known) k
    where k.has_work
        or k.has_rest;
    perform trax_router.put_placement(group_name, null);
end;
$$;
comment on function trax_router.spread_group(text) is
    'Spreads a group over all shards: its jobs go by their concurrency key, else their unique key, else anywhere, and its limits count on each shard for itself. Jobs and manifests that exist stay where they are, and so do their keys until places are divided again.';

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

create function trax_router.hold_group(
    group_name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Before any session waits here: an unreachable shard is an error.
    perform trax_router.survey_whole(group_name);
    perform trax_router.hold_placement();
    perform trax_router.refuse_moving(group_name);
end;
$$;
comment on function trax_router.hold_group(text) is
    'Internal. Keeps everybody from placing anything until the transaction ends; refuses when a shard is away or the group moves.';
