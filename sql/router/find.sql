-- The shard of a job or a dead letter: the one that assigned its id, or another to which its group
-- has moved.

create function trax_router.where_are_once(
    shard int,
    bigint[],
    boolean
)
returns table (
    id bigint,
    place text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select i as id, trax.where_is(i, $3::boolean) as place from pg_catalog.unnest($2::bigint[]) i;
$$;
comment on function trax_router.where_are_once(int, bigint[], boolean) is
    'Internal. Calls trax.where_is() on a shard for each of these ids.';

create function trax_router.where_are(
    shard int,
    bigint[],
    boolean
)
returns table (
    id bigint,
    place text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select w.* from trax_router.where_are_once($1, $2, $3) w;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select w.* from trax_router.where_are_once($1, $2, $3) w;
end;
$$;
comment on function trax_router.where_are(int, bigint[], boolean) is
    'Internal. Calls trax.where_is() on a shard for each of these ids, once more when the connection broke.';

create function trax_router.targets_of(
    source int
)
returns setof int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- plpgsql caches the plan; planning at each look would cost 0.1 ms per job.
    return query
    with recursive reached (shard) as (
        select m.target
        from trax_router.move m
        where m.source = targets_of.source
        union
        select m.target
        from reached r
        join trax_router.move m on m.source = r.shard
    )
    select r.shard
    from reached r
    where r.shard <> targets_of.source
    order by r.shard;
end;
$$;
comment on function trax_router.targets_of(int) is
    'Internal. Returns the shards to which groups of a shard may have moved.';

create function trax_router.find_moved(
    source int,
    ids bigint[],
    is_dead_letter boolean
)
returns table (
    id bigint,
    shard int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    asked int;
    places jsonb;
    ended bigint[] := '{}';
    departed bigint;
    departed_from int;
    away trax_router.failure;
    failure trax_router.failure;
begin
    foreach asked in array source || array(select trax_router.targets_of(source)) loop
        exit when ids = '{}';
        begin
            places := (
                select jsonb_object_agg(w.id, w.place)
                from trax_router.where_are(asked, ids, is_dead_letter) w
            );
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := asked;
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
                away := case when away is null then failure else away end;
                continue;
        end;
        if departed is null then
            select i, asked
            into departed, departed_from
            from unnest(ids) i
            where places ->> i::text = 'departed'
            order by i
            limit 1;
        end if;
        -- The first shard may know only an earlier end of an ended job: others are asked first.
        if asked = source then
            ended := array(select i from unnest(ids) i where places ->> i::text = 'ended');
        end if;
        return query
        select i, asked
        from unnest(ids) i
        where places ->> i::text = 'here'
            or places ->> i::text = 'ended' and asked <> source;
        ids := array(
            select i
            from unnest(ids) i
            where (places ->> i::text = 'here' or places ->> i::text = 'ended' and asked <> source) is not true
        );
    end loop;
    if departed = any (ids) then
        raise exception '% % is on its way from shard % to another',
            case when is_dead_letter then 'dead letter' else 'job' end, departed, departed_from
            using errcode = '55000',
                detail = 'The move of its group was interrupted.',
                hint = 'Move the group again: trax group move NAME --to SHARD';
    end if;
    -- A job that no reachable shard knows may be on the unreachable one.
    if away is not null and exists (select from unnest(ids) i where i <> all (ended)) then
        perform trax_router.raise(away);
    end if;
    return query select i, source from unnest(ids) i;
end;
$$;
comment on function trax_router.find_moved(int, bigint[], boolean) is
    'Internal. Returns the shard that has each of these jobs or dead letters of one shard, of which groups have moved to others. A shard that is away is refused only if one of them can be nowhere else.';

create function trax_router.shards_that_have(
    ids bigint[],
    is_dead_letter boolean
)
returns table (
    shard int,
    ids_there bigint[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    perform trax_router.wait_for_batch();
    return query
    select f.shard, array_agg(f.id)
    from (
        select n.number, n.ids, exists (select from trax_router.targets_of(n.number)) as has_moved
        from (
            select trax_router.shard_of_id(i), array_agg(distinct i)
            from unnest(ids) i
            group by 1
        ) n (number, ids)
    ) source
    cross join lateral (
        select i as id, source.number as shard
        from unnest(source.ids) i
        where not source.has_moved
        union all
        select m.id, m.shard
        from trax_router.find_moved(source.number, source.ids, is_dead_letter) m
        where source.has_moved
    ) f
    group by f.shard
    order by f.shard;
end;
$$;
comment on function trax_router.shards_that_have(bigint[], boolean) is
    'Internal. Returns the shards that have these jobs or dead letters, and which: those that gave the ids, or others to which their groups have moved.';

create function trax_router.shard_that_has(
    id bigint,
    is_dead_letter boolean
)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if id is null then
        return trax_router.any_shard();
    end if;
    return (
        select s.shard
        from trax_router.shards_that_have(array[id], is_dead_letter) s
    );
end;
$$;
comment on function trax_router.shard_that_has(bigint, boolean) is
    'Internal. Returns the shard that has a job or a dead letter; any for a null, which has the words for it.';

create function trax_router.shard_to_change(
    job_id bigint,
    group_name text
)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard constant int := trax_router.shard_that_has(job_id, false);
begin
    if group_name is not null
        and not trax_router.is_spread(group_name)
        and trax_router.shard_of_group(group_name) <> shard
    then
        raise exception 'group "%" is not on the shard of job %', group_name, job_id
            using errcode = '55000',
                detail = format('The job is on shard %s, and a job does not move alone.', shard),
                hint = format('Cancel the job, select trax.cancel(%s), and enqueue it in the group.', job_id);
    end if;
    return shard;
end;
$$;
comment on function trax_router.shard_to_change(bigint, text) is
    'Internal. Returns the shard that has a job, which may get this group; null keeps its group. Refuses a group of another shard.';
