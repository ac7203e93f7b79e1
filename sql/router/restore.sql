-- A shard that was restored from a backup: groups that have moved away since are there again.

create function trax_router.adopt_shard(
    shard int,
    text[]
)
returns void
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select trax.adopt_shard($2::text[]);
$$;
comment on function trax_router.adopt_shard(int, text[]) is
    'Internal. Calls trax.adopt_shard() on a shard.';

create function trax_router.adopt_shard(
    shard int
)
returns table (
    group_name text,
    home int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    away text[];
begin
    if shard is null or shard not in (select trax_router.numbers()) then
        perform trax_router.refuse_number(shard, null);
    end if;
    perform trax_router.hold_placement();
    away := array(
        select g.group_name
        from trax_router.known_groups(shard) g
        where shard not in (select trax_router.shards_of_settings(g.group_name))
        order by g.group_name
    );
    perform trax_router.adopt_shard(shard, away);
    for group_name in select unnest(away) loop
        home := trax_router.shard_of_group(group_name);
        perform trax_router.put_placement(
            group_name,
            home,
            array(
                select shard
                union
                select unnest(p.moves_from)
                from trax_router.group_placement p
                where p.group_name = group_name
            )
        );
        insert into trax_router.move (source, target)
        values (shard, home)
        on conflict do nothing;
        return next;
    end loop;
end;
$$;
comment on function trax_router.adopt_shard(int) is
    'Adopts a shard that was restored from a backup. Groups that are on other shards by now are disabled there, and returned with their homes: move each of them to its home again, which carries the jobs that its home does not know.';

create function trax_router.guests(
    shard int,
    int
)
returns table (
    job_id bigint,
    group_name text
)
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
as $$
    connect trax_router.address($1);
    select g.job_id, g.group_name from trax.guests($2::int) g;
$$;
comment on function trax_router.guests(int, int) is
    'Internal. Calls trax.guests() on a shard.';

create function trax_router.jobs_on_two_shards(
    at_most int default 1000
)
returns table (
    job_id bigint,
    group_name text,
    shard int,
    other_shard int
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    one int;
    origin int;
    ids bigint[];
    guests jsonb;
    failure trax_router.failure;
begin
    for one in select n from trax_router.numbers() n loop
        begin
            guests := (
                select jsonb_object_agg(g.job_id, g.group_name)
                from trax_router.guests(one, at_most) g
            );
            for origin, ids in
                select (k::bigint >> 43)::int, array_agg(k::bigint)
                from jsonb_object_keys(guests) k
                group by 1
            loop
                continue when origin not in (select trax_router.numbers());
                return query
                select w.id, guests ->> w.id::text, one, origin
                from trax_router.where_are(origin, ids, false) w
                where w.place = 'here';
            end loop;
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := one;
                -- Only the owner of trax in a shard may ask.
                if failure.state = '42501' then
                    return;
                end if;
                -- Rows of their own report an unreachable shard.
                if not trax_router.is_away(failure) then
                    perform trax_router.raise(failure);
                end if;
        end;
    end loop;
end;
$$;
comment on function trax_router.jobs_on_two_shards(int) is
    'Internal. Returns jobs that wait or run on two shards, of some that are not on the shard that gave their ids; none unless the caller owns trax there.';

create function trax_router.violations()
returns table (
    rule text,
    detail text,
    shard int
)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select
        'every job is on one shard',
        format('Job %s of group "%s" is on shard %s and on shard %s.', j.job_id, j.group_name, j.other_shard, j.shard),
        j.shard
    from trax_router.jobs_on_two_shards() j
$$;
comment on function trax_router.violations() is
    'Internal. Returns what trax.check() finds at the router itself.';

create function trax_router.unended_moves(
    patience interval
)
returns table (
    cause text,
    severity text,
    detail text,
    fix text,
    shard int
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select
        'move_broken_off', 'warning',
        format('Group "%s" has been on its way to shard %s since %s. What it still has on shard %s waits for the end of the move; to enable its group or manifests there does not help.',
            p.group_name, p.shard, date_trunc('second', p.placed_at), array_to_string(p.moves_from, ', ')),
        format('call trax_router.move_group(%L, %s, null)', p.group_name, p.shard),
        p.shard
    from trax_router.group_placement p
    where p.moves_from is not null
        and p.placed_at <= clock_timestamp() - patience
    order by p.group_name
$$;
comment on function trax_router.unended_moves(interval) is
    'Internal. Returns the groups that began to move before patience, as trax.diagnose() names causes of trouble.';

create function trax_router.causes(
    patience interval
)
returns table (
    cause text,
    severity text,
    detail text,
    fix text,
    shard int
)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select u.cause, u.severity, u.detail, u.fix, u.shard
    from trax_router.unended_moves($1) u
    union all
    (
        select
            'job_on_two_shards', 'critical',
            format('%s jobs of group "%s" are on shard %s and on shard %s, and may run twice: one of the shards was restored from a backup.',
                count(*), j.group_name, j.other_shard, j.shard),
            format('call trax_router.move_group(%L, %s, null)', j.group_name, min(trax_router.shard_of_group(j.group_name))),
            j.shard
        from trax_router.jobs_on_two_shards() j
        group by j.group_name, j.shard, j.other_shard
        order by j.group_name, j.shard
    )
$$;
comment on function trax_router.causes(interval) is
    'Internal. Returns what trax.diagnose() finds at the router itself.';
