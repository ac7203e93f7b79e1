-- The shard of a call. These functions have the rights of their owner: callers do not see the
-- tables.

create function trax_router.place_of(
    name text
)
returns int
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Not hashtext(): its result may change with the version of PostgreSQL, and a group must stay.
    return ('x' || substr(md5(name), 1, 8))::bit(32)::int & 1023;
end;
$$;
comment on function trax_router.place_of(text) is
    'Internal. Returns the place of a name, 0 to 1023; the same for ever.';

create function trax_router.shards()
returns table (
    number int,
    address text,
    closed text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select s.number, s.address, s.closed
    from trax_router.shard s
    order by s.number
$$;
comment on function trax_router.shards() is
    'Returns the shards of the cluster: their numbers, where they are, and why one is closed.';

create function trax_router.numbers()
returns setof int
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select s.number
    from trax_router.shard s
    order by s.number
$$;
comment on function trax_router.numbers() is
    'Internal. Returns the numbers of the shards, in order.';

create function trax_router.address(
    shard int
)
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    found_address text;
    why_closed text;
begin
    select s.address, s.closed
    into found_address, why_closed
    from trax_router.shard s
    where s.number = shard;
    if found_address is null then
        perform trax_router.refuse_number(shard, null);
    elsif why_closed is not null then
        raise exception 'shard % is closed', shard
            using errcode = '55000',
                detail = format('The shard was closed, and calls for it are refused: %s', why_closed),
                hint = format('When it may be called again: select trax_router.open_shard(%s)', shard);
    end if;
    -- A lost host is noticed within 15 seconds, not after two hours; settings in the address come
    -- later and override these.
    return 'application_name=trax_router keepalives_idle=5 keepalives_interval=3 keepalives_count=3 tcp_user_timeout=15000 '
        || found_address;
end;
$$;
comment on function trax_router.address(int) is
    'Internal. Returns where a shard is, for PL/Proxy; refuses a closed one.';

create function trax_router.refuse_number(
    shard int,
    id bigint
)
returns void
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    known text;
begin
    select string_agg(n::text, ', ')
    into known
    from trax_router.numbers() n;
    if known is null then
        raise exception 'the router has no shard'
            using errcode = '55000',
                detail = 'trax_router.shard has no row.',
                hint = 'Add one: select trax_router.add_shard(1, ''host=... dbname=...'')';
    end if;
    if shard is null and id is null and not exists (select from trax_router.shard s where s.closed is null) then
        raise exception 'every shard is closed'
            using errcode = '55000',
                detail = (
                    select string_agg(format('Shard %s: %s', s.number, s.closed), '; ' order by s.number)
                    from trax_router.shard s
                ),
                hint = format('When one may be called again: select trax_router.open_shard(%s)', (select min(s.number) from trax_router.shard s));
    end if;
    raise exception 'the router has no shard %', coalesce(shard::text, 'null')
        using errcode = '42704',
            detail = format('%sIts shards are %s.', 'The id ' || id || ' carries this number. ', known),
            hint = 'Specify an id that this router returned, or add the shard: select trax_router.add_shard(number, address)';
end;
$$;
comment on function trax_router.refuse_number(int, bigint) is
    'Internal. Refuses the number of a shard that the router does not have, or the id that carries it.';

create function trax_router.shard_of_id(
    id bigint
)
returns int
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    shard constant int := id >> 43;
begin
    -- A null goes to any shard, which reports the error.
    if id is null then
        return trax_router.any_shard();
    end if;
    if not exists (
        select
        from trax_router.shard s
        where s.number = shard
    ) then
        perform trax_router.refuse_number(shard, id);
    end if;
    return shard;
end;
$$;
comment on function trax_router.shard_of_id(bigint) is
    'Internal. Returns the shard that gave this id to a job or a dead letter; refuses one of another cluster.';

create function trax_router.any_shard()
returns int
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    shard int;
begin
    select s.number
    into shard
    from trax_router.shard s
    where s.closed is null
    order by s.number
    limit 1;
    if shard is null then
        perform trax_router.refuse_number(null, null);
    end if;
    return shard;
end;
$$;
comment on function trax_router.any_shard() is
    'Internal. Returns the first open shard, for a call that any can answer.';

create function trax_router.is_spread(
    group_name text
)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    name constant text := coalesce(group_name, 'default');
begin
    perform trax_router.refuse_old_snapshot(array[name]);
    -- A statement of its own: it sees the rows committed by the sessions that it waited for.
    return coalesce(
        (
            select p.shard is null
            from trax_router.group_placement p
            where p.group_name = name
        ),
        name = 'default'
    );
end;
$$;
comment on function trax_router.is_spread(text) is
    'Internal. Returns whether the jobs of a group are on all shards, each where its key is; null is the group default.';

-- Readers of these tables keep their lock until their transaction ends, and a session that moves
-- places waits for that: it sees all earlier placements. Tables are read in the order in which they
-- are locked: groups, keys, places.
create function trax_router.shard_of_group(
    group_name text,
    key text default null,
    tried int[] default '{}'
)
returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    name constant text := coalesce(group_name, 'default');
    from_place constant int := floor(random() * 1024);
    shard int;
    is_placed boolean;
begin
    perform trax_router.refuse_old_snapshot(array[name, key]);
    select p.shard, true
    into shard, is_placed
    from trax_router.group_placement p
    where p.group_name = name;
    if shard is null then
        if not coalesce(is_placed, name = 'default') then
            select p.shard
            into shard
            from trax_router.place p
            where p.place = trax_router.place_of(name);
        elsif key is not null then
            shard := trax_router.shard_of_key('job', key);
        else
            -- Any shard that was not tried: the next place after a random one, around the circle; a
            -- shard with more places gets more. Each half reads its index up to the first row: one
            -- order of all places took 0.65 ms, this 0.02 ms.
            select a.shard
            into shard
            from (
                (
                    select p.shard
                    from trax_router.place p
                    join trax_router.shard s on s.number = p.shard and s.closed is null
                    where p.place >= from_place
                        and p.shard <> all (tried)
                    order by p.place
                    limit 1
                )
                union all
                (
                    select p.shard
                    from trax_router.place p
                    join trax_router.shard s on s.number = p.shard and s.closed is null
                    where p.place < from_place
                        and p.shard <> all (tried)
                    order by p.place
                    limit 1
                )
            ) a
            limit 1;
            if shard is null and tried = '{}' then
                perform trax_router.refuse_number(null, null);
            end if;
            return shard;
        end if;
        if shard is null then
            perform trax_router.refuse_number(null, null);
        end if;
    end if;
    return case when shard <> all (tried) then shard end;
end;
$$;
comment on function trax_router.shard_of_group(text, text, int[]) is
    'Internal. Returns the shard of a group; of a spread one the shard of the key, and without a key any that was not tried. Null when all were.';

create function trax_router.refuse_old_snapshot(
    names text[]
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable')
        and not current_setting('transaction_read_only')::boolean
    then
        begin
            -- In the order in which the tables are locked.
            lock table trax_router.group_placement in access share mode;
            -- A session that changes the place of a group changes the row of its place, too.
            perform
            from trax_router.place p
            where p.place in (select trax_router.place_of(n) from unnest(names) n)
            for share;
        exception
            when serialization_failure then
                raise exception 'the placement has changed since this transaction began'
                    using errcode = '40001',
                        detail = format('The transaction is %s, and sees the old placement.', current_setting('transaction_isolation')),
                        hint = 'Run the transaction again.';
        end;
    end if;
end;
$$;
comment on function trax_router.refuse_old_snapshot(text[]) is
    'Internal. Refuses a transaction whose snapshot is older than a change of the places of these names.';

create function trax_router.wait_for_batch()
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- In the lock order of moves: a move that begins waits for this at its start, not half-way.
    lock table trax_router.group_placement, trax_router.move in access share mode;
end;
$$;
comment on function trax_router.wait_for_batch() is
    'Internal. Waits until no batch of a group is between two shards, and lets none leave before this transaction has ended.';

create function trax_router.shards_of_settings(
    group_name text
)
returns setof int
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select n
    from trax_router.numbers() n
    where trax_router.is_spread($1)
    union all
    select trax_router.shard_of_group($1)
    where not trax_router.is_spread($1)
$$;
comment on function trax_router.shards_of_settings(text) is
    'Internal. Returns the shards on which a group has its settings: all for a spread one.';

create function trax_router.shards_of_group(
    group_name text
)
returns setof int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform trax_router.wait_for_batch();
    perform trax_router.refuse_departed(null, $1);
    return query
    select s
    from trax_router.shards_of_settings($1) s
    union
    select unnest(p.moves_from)
    from trax_router.group_placement p
    where p.group_name = $1
    order by 1;
end;
$$;
comment on function trax_router.shards_of_group(text) is
    'Internal. Returns the shards that have jobs of a group: all for a spread one, and those that a moving one leaves.';

create function trax_router.moves(
    group_name text
)
returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select
        from trax_router.group_placement p
        where p.group_name = $1
            and p.moves_from is not null
    )
$$;
comment on function trax_router.moves(text) is
    'Internal. Returns whether a group is being moved.';

create function trax_router.shard_of_key(
    kind text,
    key text
)
returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    return coalesce(
        (
            select k.shard
            from trax_router.key_placement k
            where k.kind = kind
                and k.name = key
        ),
        (
            select p.shard
            from trax_router.place p
            where p.place = trax_router.place_of(key)
        )
    );
end;
$$;
comment on function trax_router.shard_of_key(text, text) is
    'Internal. Returns the shard of a key of a spread group (job), or of the name of a token (token); null without shards.';

create function trax_router.shard_of_token(
    name text
)
returns int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- In the order in which the tables are locked.
    lock table trax_router.group_placement in access share mode;
    perform trax_router.refuse_old_snapshot(array[coalesce(name, '')]);
    return coalesce(trax_router.shard_of_key('token', coalesce(name, '')), trax_router.any_shard());
end;
$$;
comment on function trax_router.shard_of_token(text) is
    'Internal. Returns the shard that has the tokens of a name.';

create function trax_router.shard_of_rate(
    name text,
    key text
)
returns int
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(trax_router.shard_of_key('rate', concat($1, ' ', $2)), trax_router.any_shard())
$$;
comment on function trax_router.shard_of_rate(text, text) is
    'Internal. Returns the shard that counts what other programs use of a rate, or of a key of it.';

create function trax_router.shares(
    count int
)
returns table (
    shard int,
    first int,
    last int
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    -- For each shard, as many of the numbers 1 to count as it has places, starting at a random one.
    return query
    select d.shard, d.first, d.last
    from (
        select
            s.shard,
            1 + (count * (sum(s.places) over (order by s.turn) - s.places) / sum(s.places) over ())::int as first,
            (count * sum(s.places) over (order by s.turn) / sum(s.places) over ())::int as last
        from (
            select p.shard, p.places, random() as turn
            from (
                select p.shard, count(*) as places
                from trax_router.place p
                group by p.shard
            ) p
            join trax_router.shard s on s.number = p.shard and s.closed is null
        ) s
    ) d
    where d.first <= d.last
    order by d.first;
end;
$$;
comment on function trax_router.shares(int) is
    'Internal. Divides the numbers 1 to count over the open shards.';
