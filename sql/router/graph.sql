-- The shard of graphs and batches: all jobs of one are on one shard, where all their groups are.

create function trax_router.shard_of_batch(
    batch bigint,
    group_name text,
    key text default null,
    tried int[] default '{}'
)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard constant int := trax_router.shard_that_has(batch, false);
    other constant int := case
        when key is not null or not trax_router.is_spread(group_name) then trax_router.shard_of_group(group_name, key)
        else shard
    end;
begin
    if other <> shard then
        raise exception 'batch % is on shard %, and the job belongs on shard %', batch, shard, other
            using errcode = '0A000',
                detail = format('All jobs of a batch are on one shard, and group "%s"%s is on another.', coalesce(group_name, 'default'), coalesce(format(' with key "%s"', key), '')),
                hint = format('Move the group to the shard of the batch: call trax_router.move_group(%L, %s, null); or use a spread group without a key.', coalesce(group_name, 'default'), shard);
    end if;
    return case when shard <> all (tried) then shard end;
end;
$$;
comment on function trax_router.shard_of_batch(bigint, text, text, int[]) is
    'Internal. Returns the shard of a batch for a job that is added to it; refuses a job whose group or key is on another.';

create function trax_router.shard_of_graph(
    document jsonb,
    unique_key text,
    tried int[] default '{}'
)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    -- A document that is none is refused by the shard.
    listed constant jsonb := case jsonb_typeof(document -> 'jobs') when 'array' then document -> 'jobs' else '[]' end;
    one record;
    spread_group text;
    chosen int;
    chosen_for text;
    wanted int;
begin
    for one in
        select distinct
            j.job ->> 'group_name' as group_name, j.job ->> 'concurrency_key' as key,
            case when jsonb_typeof(j.job -> 'batch') = 'number' then (j.job ->> 'batch')::numeric end as batch
        from jsonb_array_elements(listed) j (job)
        order by 1, 2, 3
    loop
        if one.batch is not null then
            wanted := trax_router.shard_of_batch(one.batch::bigint, one.group_name, one.key);
        elsif one.key is not null or not trax_router.is_spread(one.group_name) then
            wanted := trax_router.shard_of_group(one.group_name, one.key);
        else
            spread_group := coalesce(one.group_name, 'default');
            continue;
        end if;
        if chosen is null then
            chosen := wanted;
            chosen_for := format('group "%s"', coalesce(one.group_name, 'default'));
        elsif chosen <> wanted then
            raise exception 'the jobs of the graph belong on shards % and %', chosen, wanted
                using errcode = '0A000',
                    detail = format('All jobs of a graph are on one shard: %s is on shard %s, group "%s" on shard %s.', chosen_for, chosen, coalesce(one.group_name, 'default'), wanted),
                    hint = format('Move one of the groups: call trax_router.move_group(%L, %s, null); or use a spread group without keys.', coalesce(one.group_name, 'default'), chosen);
        end if;
    end loop;
    if chosen is null then
        return trax_router.shard_of_group(coalesce(spread_group, 'default'), unique_key, tried);
    end if;
    return case when chosen <> all (tried) then chosen end;
end;
$$;
comment on function trax_router.shard_of_graph(jsonb, text, int[]) is
    'Internal. Returns the shard on which all jobs of a graph may be; refuses a graph of which two must be on different ones.';
