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
    'Returns the number of the shard that gave this id to a job or a dead letter; 0 if its number was never set.';

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
    'Gives this database its number among several, 0 (the default) to 1023, which is in each id of a job or a dead letter, above bit 43; ids stay below 2^53, exact in JSON. Refused once there are ids with another number.';

create function trax.join_cluster()
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform trax.refuse_foreign_code();
    create extension if not exists trax_shard;
    perform trax.grant_shard_rights();
end;
$$;
comment on function trax.join_cluster() is
    'Internal. Creates the extension trax_shard unless this database has it. Called by trax_router.add_shard().';

create function trax.hold_signals(
    job_id bigint
)
returns boolean
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_hold_signals';
comment on function trax.hold_signals(bigint) is
    'Internal. Lets no transaction send a signal to a job until this one ends; false, and nothing is held, while one is sending. Called for a job that moves to another shard.';

create function trax.departures()
returns table (
    group_name text,
    target int,
    departed_at timestamptz,
    cargo jsonb
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if to_regclass('trax.departure') is not null then
        return query execute 'select d.group_name, d.target, d.departed_at, d.cargo from trax.departure d';
    end if;
end;
$$;
comment on function trax.departures() is
    'Internal. Returns the batches of groups that are on their way to another shard; none without the extension trax_shard.';
