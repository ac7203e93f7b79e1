-- The cluster itself, for the owner of the router: its shards, and the places of groups.

create function trax_router.functions_of_owner()
returns text[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select array[
        'functions_of_owner', 'grant_use', 'withdraw_use', 'look_at', 'refuse_version', 'known_groups', 'copy_settings',
        'configuration', 'configurations', 'configure', 'copy_configuration',
        'add_shard', 'move_shard', 'close_shard', 'open_shard', 'spread_places', 'keys_alive', 'pin_keys', 'pin_group',
        'place_group', 'spread_group', 'hold_group', 'cluster', 'identify', 'survey_group', 'survey', 'survey_whole', 'in_micros', 'placing_at',
        'put_settings', 'give_settings', 'hold_placement', 'put_placement', 'depart', 'arrive', 'end_departure',
        'refuse_ties', 'roles_of_group', 'missing_roles', 'begin_move', 'carry', 'move_group', 'departed', 'hold_manifests', 'forget', 'adopt_shard', 'join_cluster', 'take_in'
    ]
$$;
comment on function trax_router.functions_of_owner() is
    'Internal. Returns the functions of trax_router that are not for those who only use the router.';

create function trax_router.identify(
    address text
)
returns table (
    number int,
    version text,
    shard_version text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect address;
    select (s.seqmin >> 43)::int as number, e.extversion as version, x.extversion as shard_version
    from pg_catalog.pg_extension e
    join pg_catalog.pg_class c on c.relnamespace = e.extnamespace and c.relname = 'work_queue_job_id_seq'
    join pg_catalog.pg_sequence s on s.seqrelid = c.oid
    left join pg_catalog.pg_extension x on x.extname = 'trax_shard'
    where e.extname = 'trax';
$$;
comment on function trax_router.identify(text) is
    'Internal. Returns the number of the shard at an address, as its ids carry it, and the versions of trax and trax_shard there.';

create function trax_router.look_at(
    number int,
    address text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    found_number int;
    found_version text;
    failure trax_router.failure;
begin
    if number is null or number not between 0 and 1023 then
        raise exception 'argument "number" must be between 0 and 1023'
            using errcode = '22023',
                detail = format('number is %s.', coalesce(number::text, 'null')),
                hint = 'Name the number that trax.set_shard() gave the database: select trax_router.add_shard(1, ''host=... dbname=...'')';
    end if;
    if address is null or address ~ '^\s*[a-z]+://' or address !~ '=' then
        raise exception 'argument "address" must be words of libpq'
            using errcode = '22023',
                detail = format('address is %s.', coalesce(quote_literal(address), 'null')),
                hint = 'For example: select trax_router.add_shard(1, ''host=shard1.example port=5432 dbname=jobs'')';
    end if;
    if address ~ '\y((ssl)?password|scram_client_key|scram_server_key|oauth_client_secret)\s*=' then
        raise exception 'argument "address" must not have a password'
            using errcode = '22023',
                detail = 'Every role that may use the router can see the addresses.',
                hint = 'Put passwords into ~/.pgpass of the server''s user, or use certificates.';
    end if;
    begin
        select i.number, i.version
        into found_number, found_version
        from trax_router.identify(address) i;
    exception
        when others or query_canceled then
            get stacked diagnostics
                failure.state = returned_sqlstate,
                failure.message = message_text,
                failure.detail = pg_exception_detail,
                failure.hint = pg_exception_hint;
            failure.shard := number;
            perform trax_router.raise(failure);
    end;
    if found_version is null then
        raise exception 'the database at this address does not have the extension trax'
            using errcode = '55000',
                detail = format('pg_extension has no row for it at %s.', address),
                hint = format('Type there: create extension trax; select trax.set_shard(%s)', number);
    end if;
    if found_number <> number then
        raise exception 'the database at this address is shard %, not %', found_number, number
            using errcode = '55000',
                detail = 'Its ids carry that number; 0 is also that of a database whose number was never set, and of a restored one that waits for trax.adopt().',
                hint = format('In a new database, before it gives its first id: select trax.set_shard(%s); in a restored one, which has its number then: select trax.adopt()', number);
    end if;
end;
$$;
comment on function trax_router.look_at(int, text) is
    'Internal. Refuses an address at which there is no shard of this number.';

create function trax_router.refuse_version(
    number int,
    address text,
    joins boolean default false
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    -- Functions may change their arguments from one minor version to the next.
    minor constant text := '^[0-9]+[.][0-9]+';
    there record;
    here text;
begin
    select e.extversion
    into here
    from pg_extension e
    where e.extname = 'trax_router';
    for there in
        select x.extension, x.version
        from trax_router.identify(address) i
        cross join lateral (values ('trax', i.version), ('trax_shard', i.shard_version)) x (extension, version)
        where substring(x.version from minor) is distinct from substring(here from minor)
    loop
        -- A database that joins has the extension created there.
        continue when there.version is null and joins;
        if there.version is null then
            raise exception 'shard % does not have the extension %', number, there.extension
                using errcode = '55000',
                    detail = format('pg_extension has no row for it at %s.', address),
                    hint = format('Type there: create extension %s', there.extension);
        end if;
        raise exception 'shard % has % %, and the router is of version %', number, there.extension, there.version, here
            using errcode = '55000',
                detail = 'Both must be of one minor version: the router calls the functions that its own version has.',
                hint = format('Type in the older one: alter extension %s update, or at the router: alter extension trax_router update', there.extension);
    end loop;
end;
$$;
comment on function trax_router.refuse_version(int, text, boolean) is
    'Internal. Refuses a shard at an address whose trax or trax_shard is of another minor version than the router, or that has no trax_shard unless it joins now.';

create function trax_router.join_cluster(
    shard int
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.join_cluster();
$$;
comment on function trax_router.join_cluster(int) is
    'Internal. Calls trax.join_cluster() on a shard.';

create function trax_router.take_in(
    shard int,
    address text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
begin
    perform trax_router.join_cluster(shard);
exception
    when others or query_canceled then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text,
            failure.detail = pg_exception_detail,
            failure.hint = pg_exception_hint;
        failure.shard := shard;
        if failure.state = '42501'
            and (select i.shard_version is null from trax_router.identify(address) i)
        then
            raise exception 'shard % does not have the extension trax_shard, and role "%" may not create it there', shard, current_user
                using errcode = '42501',
                    detail = substring(failure.message from 'REMOTE [^:]*: (.*)$'),
                    hint = 'Type there, as a superuser who is the owner of trax: create extension trax_shard; then add the shard again';
        end if;
        perform trax_router.raise(failure);
end;
$$;
comment on function trax_router.take_in(int, text) is
    'Internal. Creates the extension trax_shard on a shard that has none; its error says what to type there when the role may not.';

create function trax_router.add_shard(
    number int,
    address text
)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    spread text;
begin
    perform trax_router.look_at(number, address);
    perform trax_router.refuse_version(number, address, joins => true);
    -- In the lock order of moves: a move that begins waits for this.
    lock table trax_router.group_placement in access share mode;
    lock table trax_router.shard in share row exclusive mode;
    if exists (
        select
        from trax_router.shard s
        where s.number = number
            and s.address <> address
    ) then
        raise exception 'shard % is at another address', number
            using errcode = '42710',
                detail = format('It is at: %s', (select s.address from trax_router.shard s where s.number = add_shard.number)),
                hint = format('If it has moved: select trax_router.move_shard(%s, %L)', number, address);
    end if;
    insert into trax_router.shard as s (number, address)
    values (number, address)
    on conflict do nothing;
    perform trax_router.take_in(number, address);
    -- The first shard has all places; later ones get theirs when the owner rebalances.
    insert into trax_router.place (place, shard)
    select n, number
    from generate_series(0, 1023) n
    on conflict do nothing;
    for spread in
        select 'default'
        where trax_router.is_spread('default')
        union
        select p.group_name
        from trax_router.group_placement p
        where p.shard is null
    loop
        perform trax_router.copy_settings(spread, number);
    end loop;
    perform trax_router.copy_configuration(number);
    -- Notifies fleets.
    perform pg_notify('trax_router', number::text);
    if exists (
        select
        from trax_router.place p
        where p.shard = number
    ) then
        return 'has places';
    end if;
    return 'has no place: select trax_router.spread_places()';
end;
$$;
comment on function trax_router.add_shard(int, text) is
    'Adds a database to the cluster, and returns whether groups are placed there. The first has all 1,024 places; after others were added trax_router.spread_places() divides them. Its number is that of trax.set_shard() there. Creates the extension trax_shard there.';

create function trax_router.move_shard(
    number int,
    address text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    perform trax_router.look_at(number, address);
    update trax_router.shard s
    set address = move_shard.address
    where s.number = move_shard.number;
    if not found then
        perform trax_router.refuse_number(number, null);
    end if;
    perform pg_notify('trax_router', number::text);
end;
$$;
comment on function trax_router.move_shard(int, text) is
    'Says that a shard is at another address now: its database was moved, or a standby took over.';

create function trax_router.close_shard(
    number int,
    reason text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    if coalesce(reason, '') = '' then
        raise exception 'argument "reason" must not be empty'
            using errcode = '22023',
                detail = 'The errors of refused calls show the reason.',
                hint = format('Name one: select trax_router.close_shard(%s, ''new disks'')', number);
    end if;
    update trax_router.shard s
    set closed = reason
    where s.number = close_shard.number;
    if not found then
        perform trax_router.refuse_number(number, null);
    end if;
end;
$$;
comment on function trax_router.close_shard(int, text) is
    'Has calls for a shard refused at once, with the reason, instead of trying to reach it; jobs that may run anywhere go elsewhere.';

create function trax_router.open_shard(
    number int
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    update trax_router.shard s
    set closed = null
    where s.number = open_shard.number;
    if not found then
        perform trax_router.refuse_number(number, null);
    end if;
end;
$$;
comment on function trax_router.open_shard(int) is
    'Has a closed shard called again.';

create function trax_router.cluster()
returns table (
    shard int,
    address text,
    places int,
    groups_placed int,
    state text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    for shard, address, state in select * from trax_router.shards() loop
        places := (select count(*) from trax_router.place p where p.shard = cluster.shard);
        groups_placed := (select count(*) from trax_router.group_placement p where p.shard = cluster.shard);
        state := 'closed: ' || state;
        if state is null then
            begin
                perform trax_router.look_at(shard, address);
                perform trax_router.refuse_version(shard, address);
                state := 'open';
            exception
                when others then
                    get stacked diagnostics
                        state = message_text;
            end;
        end if;
        return next;
    end loop;
end;
$$;
comment on function trax_router.cluster() is
    'Returns the shards: where each is, how many of the 1,024 places and how many groups of their own it has, and whether it is open, closed or why it cannot be reached.';
