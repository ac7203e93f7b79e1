-- Keys that stay on their shard when places move: names of held tokens, and live keys of spread
-- groups. Another shard would grant each a second time. The shard, whose clock may have jumped,
-- decides whether a key is over: its row is gone then.

create function trax_router.keys_alive(
    shard int,
    text[]
)
returns table (
    kind text,
    name text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select 'token' as kind, t.name from trax.concurrency_token t
    union select 'token', w.name from trax.concurrency_waiter w
    union select 'job', coalesce(q.concurrency_key, q.unique_key)
        from trax.work_queue q
        where q.group_name = any ($2::text[])
            and coalesce(q.concurrency_key, q.unique_key) is not null
    union select 'job', coalesce(l.concurrency_key, l.unique_key)
        from trax.lease l
        where l.group_name = any ($2::text[])
            and coalesce(l.concurrency_key, l.unique_key) is not null
    union select 'job', k.key from trax.unique_key k where k.ended;
$$;
comment on function trax_router.keys_alive(int, text[]) is
    'Internal. Returns the tokens that are held or waited for on a shard, and the keys by which the live jobs of these groups were placed, with the unique keys that ended ones keep.';

create function trax_router.pin_keys(
    before jsonb
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    spread constant text[] := array(
        select 'default'
        where trax_router.is_spread('default')
        union
        select p.group_name
        from trax_router.group_placement p
        where p.shard is null
    );
    failure trax_router.failure;
begin
    for shard in
        select (before -> p.place::text)::int
        from trax_router.place p
        where (before -> p.place::text)::int <> p.shard
        union
        select k.shard
        from trax_router.key_placement k
        join trax_router.shard s on s.number = k.shard and s.closed is null
        order by 1
    loop
        begin
            with alive as materialized (
                select a.kind, a.name
                from trax_router.keys_alive(shard, spread) a
            ),
            ended as (
                delete from trax_router.key_placement k
                where k.shard = shard
                    and not exists (
                        select
                        from alive a
                        where a.kind = k.kind
                            and a.name = k.name
                    )
                returning k.name
            ),
            -- A session with an older snapshot finds the place changed:
            -- trax_router.refuse_old_snapshot().
            changed as (
                update trax_router.place p
                set shard = p.shard
                where p.place in (select trax_router.place_of(e.name) from ended e)
            )
            insert into trax_router.key_placement (kind, name, shard)
            select a.kind, a.name, shard
            from alive a
            join trax_router.place p on p.place = trax_router.place_of(a.name)
            where p.shard <> shard
                and (before -> p.place::text)::int = shard
            on conflict on constraint key_placement_pkey do nothing;
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
    end loop;
end;
$$;
comment on function trax_router.pin_keys(jsonb) is
    'Internal. Keeps keys that are alive on the shards that had their places before, and forgets those that have ended since they were kept.';

create function trax_router.pin_group(
    shard int,
    group_name text
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    failure trax_router.failure;
begin
    insert into trax_router.key_placement (kind, name, shard)
    select a.kind, a.name, shard
    from trax_router.keys_alive(shard, array[group_name]) a
    join trax_router.place p on p.place = trax_router.place_of(a.name)
    where a.kind = 'job'
        and p.shard <> shard
    on conflict on constraint key_placement_pkey do nothing;
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
comment on function trax_router.pin_group(int, text) is
    'Internal. Keeps the living keys of a group that is to be spread on the shard that has them.';
