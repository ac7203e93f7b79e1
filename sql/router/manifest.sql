-- Manifests: each lives with its group, and its parents live on the same shard.

create function trax_router.remembered(
    manifest text
)
returns int
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select m.shard
    from trax_router.manifest m
    where m.name = $1
$$;
comment on function trax_router.remembered(text) is
    'Internal. Returns the shard on which a manifest was seen last; null when it is not known.';

create function trax_router.shards_of_manifest(
    manifest text
)
returns setof int
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform trax_router.wait_for_batch();
    perform trax_router.refuse_departed(array[$1], null);
    return query
    select s.number
    from trax_router.shard s
    left join trax_router.manifest m on m.name = $1 and m.shard = s.number
    order by m.name is null, s.number;
end;
$$;
comment on function trax_router.shards_of_manifest(text) is
    'Internal. Returns all shards, the one on which a manifest was seen last before the others.';

create function trax_router.hold_manifests()
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- A manifest that moves with its group is on either shard.
    perform trax_router.wait_for_batch();
    -- If two sessions place a new name at once, the second sees the place that the first chose. No
    -- statement that other roles may run conflicts with this mode; a standby routes without the
    -- lock.
    if not current_setting('transaction_read_only')::boolean then
        lock table trax_router.manifest in share update exclusive mode;
    end if;
end;
$$;
comment on function trax_router.hold_manifests() is
    'Internal. Makes others who place manifests wait until this transaction has ended.';

create function trax_router.remember(
    manifest text,
    seen_on int
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms'
as $$
begin
    -- A standby, which cannot write, asks again the next time. So does a serializable transaction,
    -- which could fail at its end because of a row written here.
    if current_setting('transaction_read_only')::boolean
        or current_setting('transaction_isolation') = 'serializable'
        or seen_on is not distinct from trax_router.remembered(manifest)
    then
        return;
    end if;
    -- Every role that may use the router may call this: a place counts if the shard confirms it.
    if exists (select from trax_router.has_manifests(seen_on, array[manifest])) then
        insert into trax_router.manifest as m (name, shard)
        values (remember.manifest, seen_on)
        on conflict (name) do update set shard = excluded.shard;
    end if;
exception
    -- The shard has committed the call: an error here would invite the caller to repeat it.
    when others then
        return;
end;
$$;
comment on function trax_router.remember(text, int) is
    'Internal. Writes down on which shard a manifest is, if that shard says so; not if that fails or has to wait: whoever does not find it there asks all shards.';

create function trax_router.forget(
    manifest text
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms'
as $$
begin
    if not current_setting('transaction_read_only')::boolean and current_setting('transaction_isolation') <> 'serializable' then
        delete from trax_router.manifest m
        where m.name = forget.manifest;
    end if;
exception
    -- The shard has committed the call.
    when others then
        return;
end;
$$;
comment on function trax_router.forget(text) is
    'Internal. Forgets where a manifest was that has been removed, unless that fails or has to wait.';

create function trax_router.has_manifests(
    shard int,
    text[]
)
returns setof text
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select m.name from trax.manifest m where m.name = any ($2::text[]);
$$;
comment on function trax_router.has_manifests(int, text[]) is
    'Internal. Returns those of these manifests that a shard has.';

create function trax_router.find_manifests(
    names text[]
)
returns table (
    manifest text,
    shard int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    found text[] := '{}';
    away int[] := '{}';
    here text[];
    asked int;
    failure trax_router.failure;
begin
    perform trax_router.refuse_departed(names, null);
    for asked in select * from trax_router.numbers() loop
        begin
            select coalesce(array_agg(h), '{}')
            into here
            from trax_router.has_manifests(asked, names) h;
            found := found || here;
            return query select h, asked from unnest(here) h;
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
                away := away || asked;
        end;
    end loop;
    -- A manifest that no reachable shard has counts as being where it was last seen, if that shard
    -- is unreachable.
    return query
    select n, trax_router.remembered(n)
    from unnest(names) n
    where n <> all (found)
        and trax_router.remembered(n) = any (away);
end;
$$;
comment on function trax_router.find_manifests(text[]) is
    'Internal. Returns the shards on which these manifests are; of a shard that is away what is known of it.';

create function trax_router.place_manifests(
    manifests jsonb
)
returns table (
    manifest text,
    shard int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    is_at jsonb;
    document jsonb;
    name text;
    parent text;
    own_group text;
    place int;
    wanted int;
    rest jsonb := manifests;
    later jsonb;
    parents jsonb;
begin
    -- Shards refuse a role that may not place manifests; it must not block other sessions here.
    if has_function_privilege('trax_router.hold_manifests()', 'execute') then
        perform trax_router.hold_manifests();
    end if;
    select coalesce(jsonb_object_agg(f.manifest, f.shard), '{}')
    into is_at
    from trax_router.find_manifests(array(
        select m ->> 'name'
        from jsonb_array_elements(manifests) m
        where m ->> 'name' is not null
        union
        select p
        from jsonb_array_elements(manifests) m,
            jsonb_array_elements_text(case when jsonb_typeof(m -> 'depends_on') = 'array' then m -> 'depends_on' else '[]' end) p
    )) f;
    -- Parents before their dependents; a circle comes in any order, and the shard refuses it.
    while jsonb_array_length(rest) > 0 loop
        later := '[]';
        for document in select * from jsonb_array_elements(rest) loop
            name := document ->> 'name';
            own_group := document ->> 'group_name';
            parents := case when jsonb_typeof(document -> 'depends_on') = 'array' then document -> 'depends_on' else '[]' end;
            if exists (
                select
                from jsonb_array_elements(rest) other
                where other ->> 'name' <> name
                    and parents ? (other ->> 'name')
            ) and jsonb_array_length(later) + 1 < jsonb_array_length(rest) then
                later := later || document;
                continue;
            end if;
            place := is_at -> name;
            wanted := null;
            if own_group is not null and not trax_router.is_spread(own_group) then
                wanted := trax_router.shard_of_group(own_group);
            elsif place is null then
                -- In a spread group a dependent goes where its first parent is.
                select (is_at -> p)::int
                into wanted
                from jsonb_array_elements_text(parents) with ordinality parent (p, at)
                where is_at ? p
                order by at
                limit 1;
                wanted := coalesce(wanted, trax_router.shard_of_group(own_group, coalesce(name, '')));
            end if;
            if place <> wanted then
                raise exception 'manifest "%" is on another shard than group "%"', name, own_group
                    using errcode = '0A000',
                        detail = format('The manifest is on shard %s, the group on shard %s, and a manifest moves with its group only.', place, wanted),
                        hint = case when trax_router.moves(own_group)
                            then 'The group is being moved: try again when that is done.'
                            else format('Remove it first, which cancels its waiting jobs: select trax.unschedule(%L)', name)
                        end;
            end if;
            place := coalesce(place, wanted);
            for parent in
                select p
                from jsonb_array_elements_text(parents) p
                where (is_at -> p)::int <> place
            loop
                raise exception 'manifest "%" cannot depend on manifest "%", which is on another shard', name, parent
                    using errcode = '0A000',
                        detail = format('"%s" is on shard %s, "%s" on shard %s.', name, place, parent, is_at -> parent),
                        hint = 'Put both into one group that is not spread: group_name => ''...''';
            end loop;
            is_at := is_at || jsonb_build_object(coalesce(name, ''), place);
            manifest := name;
            shard := place;
            return next;
        end loop;
        rest := later;
    end loop;
end;
$$;
comment on function trax_router.place_manifests(jsonb) is
    'Internal. Returns the shard of each manifest of a document, new ones too; refuses a dependency between shards, and a group on another shard than its manifest.';

create function trax.schedule(
    name text,
    task text default null,
    input jsonb default null,
    cron text default null,
    every interval default null,
    run_at timestamptz default null,
    depends_on text[] default null,
    depends_mode text default null,
    dormant boolean default null,
    timezone text default null,
    group_name text default null,
    priority int default null,
    max_retries int default null,
    retry_delay interval default null,
    timeout interval default null,
    misfire text default null,
    misfire_threshold interval default null,
    misfire_limit int default null,
    overlap text default null,
    max_concurrency int default null,
    variance interval default null,
    exclusions jsonb default null,
    starts_at timestamptz default null,
    ends_at timestamptz default null,
    enabled boolean default null,
    on_dead_letter text default null,
    sql text default null,
    run_as text default null
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    id bigint;
    failure trax_router.failure;
begin
    select p.shard
    into shard
    from trax_router.place_manifests(jsonb_build_array(jsonb_build_object(
        'name', name, 'group_name', group_name, 'depends_on', to_jsonb(depends_on)
    ))) p;
    begin
        id := trax_router.schedule(
            shard, name, task, input, cron, every, run_at, depends_on, depends_mode, dormant, timezone, group_name, priority,
            max_retries, retry_delay, timeout, misfire, misfire_threshold, misfire_limit, overlap, max_concurrency, variance,
            exclusions, starts_at, ends_at, enabled, on_dead_letter, sql, run_as
        );
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
    perform trax_router.remember(name, shard);
    return id;
end;
$$;
comment on function trax.schedule(text, text, jsonb, text, interval, timestamptz, text[], text, boolean, text, text, int, int, interval, interval, text, interval, int, text, int, interval, jsonb, timestamptz, timestamptz, boolean, text, text, text) is
    'Creates or changes a manifest on the shard of its group, and returns its id, which is one of that shard; an argument that is left out keeps its value. In a spread group a new manifest goes where its parents are, or by its name. A dependency between shards is refused.';

create function trax.apply(
    document jsonb,
    prune boolean default false,
    dry_run boolean default false,
    source text default null
)
returns table (
    action text,
    kind text,
    name text,
    detail text,
    shard int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    groups constant jsonb := case when jsonb_typeof(document -> 'groups') = 'array' then document -> 'groups' else '[]' end;
    manifests constant jsonb := case when jsonb_typeof(document -> 'manifests') = 'array' then document -> 'manifests' else '[]' end;
    place_of jsonb;
    part jsonb;
    done int[] := '{}';
    failure trax_router.failure;
begin
    select coalesce(jsonb_object_agg(coalesce(p.manifest, ''), p.shard), '{}')
    into place_of
    from trax_router.place_manifests(manifests) p;
    for shard in select * from trax_router.numbers() loop
        -- Each shard reports errors of the document as a whole.
        part := case when jsonb_typeof(document) = 'object' then document - 'groups' - 'manifests' || jsonb_build_object(
            'groups',
            case when groups = '[]' and document ? 'groups' then document -> 'groups' else (
                select coalesce(jsonb_agg(g.value order by g.at), '[]')
                from jsonb_array_elements(groups) with ordinality g (value, at)
                where shard in (select trax_router.shards_of_settings(g.value ->> 'name'))
            ) end,
            'manifests',
            case when manifests = '[]' and document ? 'manifests' then document -> 'manifests' else (
                select coalesce(jsonb_agg(m.value order by m.at), '[]')
                from jsonb_array_elements(manifests) with ordinality m (value, at)
                where (place_of -> coalesce(m.value ->> 'name', ''))::int = shard
            ) end
        ) else document end;
        continue when part -> 'groups' = '[]' and part -> 'manifests' = '[]' and not coalesce(prune, false)
            and document ?| array['groups', 'manifests']
            and not document ?| array['rates', 'tasks'];
        begin
            return query select a.*, shard from trax_router.apply(shard, part, prune, dry_run, source) a;
            done := done || shard;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                perform trax_router.raise(failure, case when not coalesce(dry_run, false) then trax_router.done_on(done) end);
        end;
    end loop;
    if not coalesce(dry_run, false) then
        perform trax_router.remember(m.key, m.value::int)
        from jsonb_each(place_of) m;
    end if;
end;
$$;
comment on function trax.apply(jsonb, boolean, boolean, text) is
    'Creates and changes the groups and manifests of one document, each on its shard, and its rates and the defaults of tasks, on all, and returns what it did and where. All or nothing on each shard: when one refuses, the DETAIL names those that did their part; apply the whole again.';
