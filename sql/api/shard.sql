-- shard: several databases whose ids never collide. An id contains its database's number above bit
-- 43; the rest counts from 1, and the whole id is exact in JSON, below 2^53.

create function trax.shard_of(
    job_id bigint
)
returns int
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select (job_id >> 43)::int
$$;
comment on function trax.shard_of(bigint) is
    'Returns the number of the shard that gave this id to a job or a dead letter; 0 is that of a database whose number was never set.';

create function trax.number_ids(
    number int
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    first constant bigint := (number::bigint << 43) + 1;
    last constant bigint := ((number + 1)::bigint << 43) - 1;
    sequence regclass;
    given bigint;
    given_here boolean;
begin
    foreach sequence in array array['trax.work_queue_job_id_seq', 'trax.dead_letter_id_seq']::regclass[] loop
        -- Waits for transactions that have taken an id, and keeps others from taking one until this
        -- ends.
        execute format('alter sequence %s no cycle', sequence);
        execute format('select s.last_value, s.is_called from %s s', sequence) into given, given_here;
        if not given_here then
            execute format('alter sequence %s minvalue %s maxvalue %s start %s restart', sequence, first, last, first);
        elsif trax.shard_of(given) = number then
            execute format('alter sequence %s minvalue %s maxvalue %s start %s', sequence, first, last, first);
        else
            raise exception 'this database has given ids as shard %', trax.shard_of(given)
                using errcode = '55000',
                    detail = format('The last is %s. As shard %s it would give ids that another database may have given.', given, number),
                    hint = format(
                        'Keep the number %s. In a new database, set another number right after create extension trax, before the first job is enqueued.',
                        trax.shard_of(given)
                    );
        end if;
    end loop;
end;
$$;
comment on function trax.number_ids(int) is
    'Internal. Makes the ids of jobs and dead letters those of a shard, and no others.';

create function trax.set_shard(
    number int
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if number is null then
        raise exception 'argument "number" must not be null'
            using errcode = '22004',
                detail = 'The argument "number" is null.',
                hint = 'Give each database a number of its own: select trax.set_shard(1)';
    end if;
    if number not between 0 and 1023 then
        raise exception 'argument "number" must be between 0 and 1023'
            using errcode = '22023',
                detail = format('number is %s.', number),
                hint = 'Give each database a number of its own: select trax.set_shard(1)';
    end if;
    perform trax.refuse_foreign_code();
    perform trax.number_ids(number);
    insert into trax.audit (action, kind, name, note)
    values ('set_shard', 'scheduler', current_database(), number::text);
end;
$$;
comment on function trax.set_shard(int) is
    'Gives this database its number among several, 0 to 1023, which its ids of jobs and dead letters carry from then on; refused when ids were given under another.';

create function trax.where_is(
    id bigint,
    is_dead_letter boolean default false
)
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    if id is null then
        raise exception 'argument "id" must not be null'
            using errcode = '22004',
                detail = 'The argument "id" is null.',
                hint = 'Specify the id that trax.enqueue returned, or that of a dead letter: id => 1';
    end if;
    if is_dead_letter then
        return case
            when exists (select from trax.dead_letter d where d.id = id and d.resolved_at is null) then 'here'
            when exists (
                select
                from trax.departure d
                where d.cargo -> 'dead_letters' @> jsonb_build_array(jsonb_build_object('id', id))
            ) then 'departed'
            -- A letter that trax.depart() marked as moved with its group has not ended here.
            when exists (
                select
                from trax.dead_letter d
                where d.id = id
                    and not (d.status = 'acknowledged' and coalesce(d.resolution_note, '') ~ '^moved to shard [0-9]+$')
            ) then 'ended'
        end;
    end if;
    return case
        when exists (select from trax.work_queue q where q.job_id = id)
            or exists (select from trax.lease l where l.job_id = id) then 'here'
        when exists (
            select
            from trax.departure d
            where d.cargo -> 'jobs' @> jsonb_build_array(jsonb_build_object('job_id', id))
        ) then 'departed'
        when exists (select from trax.run r where r.job_id = id and r.final) then 'ended'
    end;
end;
$$;
comment on function trax.where_is(bigint, boolean) is
    'Returns where a job, or a dead letter, is in this database: here (it waits or runs, or is unresolved), departed (on its way to another shard) or ended (or resolved); null when it is not known.';

create function trax.known_jobs(
    cargo jsonb
)
returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(j.job_id), '{}')
    from (
        select (q ->> 'job_id')::bigint
        from jsonb_array_elements($1 -> 'jobs') q
    ) j (job_id)
    where exists (select from trax.work_queue q where q.job_id = j.job_id)
        or exists (select from trax.lease l where l.job_id = j.job_id)
        or exists (select from trax.run r where r.job_id = j.job_id and r.final)
$$;
comment on function trax.known_jobs(jsonb) is
    'Internal. Returns the jobs of a batch that wait, run or have ended here: the shard that sent them was restored from a backup that is older than their move.';

create function trax.join_cluster()
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    insert into trax.group_home (group_name, placed_at)
    values ('', 0)
    on conflict do nothing
$$;
comment on function trax.join_cluster() is
    'Internal. Notes that a router has this database as a shard. Called by trax_router.add_shard().';

create function trax.adopt_shard(
    groups_away text[]
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
begin
    for name in select distinct n from unnest(groups_away) n loop
        perform trax.configure_group(name, enabled => false);
    end loop;
    perform trax.adopt(keep => true);
end;
$$;
comment on function trax.adopt_shard(text[]) is
    'Internal. Adopts a copy of a shard, with these groups, which are on other shards, disabled. Called by trax_router.adopt_shard().';

create function trax.guests(
    at_most int
)
returns table (
    job_id bigint,
    group_name text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with own as (
        select
            trax.shard_of(s.last_value)::bigint << 43 as first,
            (trax.shard_of(s.last_value)::bigint + 1) << 43 as beyond
        from trax.work_queue_job_id_seq s
    )
    (
        select q.job_id, q.group_name
        from own o
        join trax.work_queue q on q.job_id < o.first
        limit $1
    )
    union all
    (
        select q.job_id, q.group_name
        from own o
        join trax.work_queue q on q.job_id >= o.beyond
        limit $1
    )
    union all
    (
        select l.job_id, l.group_name
        from own o
        join trax.lease l on l.job_id < o.first
            or l.job_id >= o.beyond
        limit $1
    )
$$;
comment on function trax.guests(int) is
    'Internal. Returns jobs that wait or run here and that another shard has given their ids, some of each kind.';
