-- Many jobs at once, and waiting for them: calls of several shards, and the procedures, which
-- PL/Proxy cannot call.

create function trax.enqueue_many(
    task text,
    inputs jsonb[],
    run_at timestamptz default null,
    group_name text default null,
    priority int default 0,
    max_retries int default null,
    timeout interval default null,
    unique_key text default null,
    concurrency_key text default null,
    trace jsonb default null,
    retry_delay interval default null,
    unique_for interval default null,
    version text default null,
    batch bigint default null,
    rate text default null,
    rate_key text default null,
    cost int default 1,
    on_duplicate text default null
)
returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    -- Shares are numbered from 1, which an array need not be.
    listed constant jsonb[] := case when inputs is not null then array(select i from unnest(inputs) i) end;
    count constant int := cardinality(inputs);
    is_divided constant boolean := coalesce(unique_key, concurrency_key) is null
        and batch is null
        and trax_router.is_spread(group_name);
    shard int;
    first int;
    last int;
    tried int[];
    done text;
    failure trax_router.failure;
begin
    for shard, first, last in
        select s.*
        from trax_router.shares(count) s
        where is_divided and count > 1
        union all
        select
            case
                when batch is null then trax_router.shard_of_group(group_name, coalesce(concurrency_key, unique_key))
                else trax_router.shard_of_batch(batch, group_name, coalesce(concurrency_key, unique_key))
            end,
            1, count
        where (is_divided and count > 1) is not true
    loop
        tried := '{}';
        while shard is not null loop
            begin
                return query select c from trax_router.enqueue_many(
                    shard, task, listed[first:last], run_at, group_name, priority, max_retries, timeout, unique_key,
                    concurrency_key, trace, retry_delay, unique_for, version, batch, rate, rate_key, cost, on_duplicate
                ) c;
                exit;
            exception
                when others or query_canceled then
                    get stacked diagnostics
                        failure.state = returned_sqlstate,
                        failure.message = message_text,
                        failure.detail = pg_exception_detail,
                        failure.hint = pg_exception_hint;
                    failure.shard := shard;
            end;
            tried := tried || shard;
            shard := case
                when trax_router.was_not_reached(failure.message) and batch is null
                    then trax_router.shard_of_group(group_name, coalesce(concurrency_key, unique_key), tried)
            end;
            if shard is null then
                perform trax_router.raise(failure, done);
            end if;
        end loop;
        done := format('Inputs 1 to %s were enqueued and stay so.', last);
    end loop;
    if done is null then
        perform trax_router.refuse_number(null, null);
    end if;
end;
$$;
comment on function trax.enqueue_many(text, jsonb[], timestamptz, text, int, int, interval, text, text, jsonb, interval, interval, text, bigint, text, text, int, text) is
    'Queues one job for each input and returns their ids in the order of the inputs. A unique_key with several inputs is refused. In a spread group without a key they are divided over the shards, and all or nothing on each.';

create function trax.get_jobs(
    job_ids bigint[]
)
returns table (
    job_id bigint,
    state text,
    attempt int,
    task text,
    manifest text,
    group_name text,
    priority int,
    run_at timestamptz,
    scheduled_for timestamptz,
    queued_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    worker text,
    error text,
    output jsonb,
    progress jsonb
)
language plpgsql volatile
rows 10
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    ids bigint[];
    failure trax_router.failure;
begin
    for shard, ids in
        select s.shard, s.ids_there
        from trax_router.shards_that_have(array_remove(job_ids, null), false) s
        union all
        select trax_router.any_shard(), job_ids
        where job_ids is null
    loop
        begin
            return query select j.* from trax_router.get_jobs(shard, ids) j;
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
comment on function trax.get_jobs(bigint[]) is
    'Returns a row for each of these jobs that exists, as trax.job shows it but without its input, in no order. A role that is limited to tasks and groups is refused a job outside of them.';

create function trax_router.refuse_wait(
    name text,
    wait interval
)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if wait is null then
        raise exception 'argument "%" must not be null', name
            using errcode = '22004',
                detail = format('The argument "%s" is null.', name),
                hint = format('Specify a value: %s => ''30 s''', name);
    end if;
    if wait < interval '0' then
        raise exception 'argument "%" must not be negative', name
            using errcode = '22023',
                detail = format('%s is %s.', name, wait),
                hint = format('Specify a time of 0 or more: %s => ''30 s''', name);
    end if;
end;
$$;
comment on function trax_router.refuse_wait(text, interval) is
    'Internal. Refuses a time to wait that is none.';

-- The procedures poll, at first after 10 ms and then ever less often: PL/Proxy cannot call one.
-- They have no settings of their own, which would not allow them to commit.
create procedure trax.await_job(
    job_id bigint,
    timeout interval,
    out state text,
    out output jsonb,
    out error text
)
language plpgsql
as $$
#variable_conflict use_variable
declare
    until pg_catalog.timestamptz;
    pause pg_catalog.float8 := 0.01;
begin
    perform trax_router.refuse_wait('timeout', timeout);
    until := pg_catalog.clock_timestamp() operator(pg_catalog.+) timeout;
    loop
        commit;
        select j.state, j.output, j.error
        into state, output, error
        from trax.get_jobs(array[job_id]) j;
        if not found then
            raise exception 'job % does not exist', job_id
                using errcode = '42704',
                    detail = 'No job that waits, runs or has ended within trax.run_retention has this id.',
                    hint = 'Specify the id that trax.enqueue returned.';
        end if;
        exit when state operator(pg_catalog.=) any (array['completed', 'failed', 'cancelled'])
            or pg_catalog.clock_timestamp() operator(pg_catalog.>=) until;
        commit;
        perform pg_catalog.pg_sleep(pause);
        pause := least(pause operator(pg_catalog.*) 1.5, 0.5);
    end loop;
end;
$$;
comment on procedure trax.await_job(bigint, interval) is
    'Returns when a job has ended (completed, failed for good or cancelled), at once if it has; when the time is up the state is what it is then: queued, as also between two attempts, or in_progress. Looks up to twice a second. Refused inside a transaction block.';

create procedure trax.await_jobs(
    job_ids bigint[],
    timeout interval,
    out ended bigint[],
    until_message boolean default false
)
language plpgsql
as $$
#variable_conflict use_variable
declare
    until pg_catalog.timestamptz;
    pause pg_catalog.float8 := 0.01;
begin
    perform trax_router.refuse_wait('timeout', timeout);
    -- A message cannot be seen from here: a caller that may send one gets its answer soon.
    until := pg_catalog.clock_timestamp()
        operator(pg_catalog.+) case when until_message then least(timeout, interval '500 ms') else timeout end;
    loop
        commit;
        select coalesce(pg_catalog.array_agg(e.job_id order by e.job_id), '{}')
        into ended
        from (
            select i as job_id
            from pg_catalog.unnest(job_ids) i
            except
            select j.job_id
            from trax.get_jobs(job_ids) j
            where j.state operator(pg_catalog.=) any (array['queued', 'in_progress'])
        ) e;
        exit when ended operator(pg_catalog.<>) '{}'
            or pg_catalog.clock_timestamp() operator(pg_catalog.>=) until;
        commit;
        perform pg_catalog.pg_sleep(pause);
        pause := least(pause operator(pg_catalog.*) 1.5, 0.5);
    end loop;
end;
$$;
comment on procedure trax.await_jobs(bigint[], interval, boolean) is
    'Returns those of the jobs (at most 65536) that have ended or do not exist, as soon as there is one; empty when the time is up, with until_message after half a second. Looks up to twice a second. Refused inside a transaction block.';

create procedure trax.await_token(
    name text,
    holder text,
    max_holders int,
    ttl interval,
    wait interval,
    out slot int,
    out token uuid,
    out expires_at timestamptz
)
language plpgsql
as $$
#variable_conflict use_variable
declare
    until pg_catalog.timestamptz;
    pause pg_catalog.float8 := 0.01;
begin
    perform trax_router.refuse_wait('wait', wait);
    until := pg_catalog.clock_timestamp() operator(pg_catalog.+) wait;
    loop
        commit;
        select t.slot, t.token, t.expires_at
        into slot, token, expires_at
        from trax.acquire_token(name, holder, max_holders, ttl) t;
        exit when slot is not null
            or pg_catalog.clock_timestamp() operator(pg_catalog.>=) until;
        commit;
        perform pg_catalog.pg_sleep(pause);
        pause := least(pause operator(pg_catalog.*) 1.5, 0.5);
    end loop;
end;
$$;
comment on procedure trax.await_token(text, text, int, interval, interval) is
    'Like trax.acquire_token, but tries again until the time is up, and returns nulls then. Those who wait through the router have no order among themselves; who waits at the shard is before them. Refused inside a transaction block.';

create function trax.requeue_dead_letters(
    task text default null,
    manifest text default null,
    group_name text default null,
    since timestamptz default null,
    max_count int default null
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    shard int;
    requeued bigint := 0;
    refusal trax_router.failure;
    failure trax_router.failure;
begin
    for shard in select * from trax_router.numbers() loop
        begin
            requeued := requeued
                + trax_router.requeue_dead_letters(shard, task, manifest, group_name, since, (max_count - requeued)::int);
        exception
            when others or query_canceled then
                get stacked diagnostics
                    failure.state = returned_sqlstate,
                    failure.message = message_text,
                    failure.detail = pg_exception_detail,
                    failure.hint = pg_exception_hint;
                failure.shard := shard;
                refusal := case when refusal is null or trax_router.is_cancelled(failure) then failure else refusal end;
        end;
        exit when requeued >= max_count or trax_router.is_cancelled(refusal);
    end loop;
    if refusal is not null then
        perform trax_router.raise(
            refusal, case when requeued > 0 then format('On the other shards %s were requeued and stay so.', requeued) end
        );
    end if;
    return requeued;
end;
$$;
comment on function trax.requeue_dead_letters(text, text, text, timestamptz, int) is
    'Requeues unresolved dead letters that match all filters, the oldest of each shard first, at most max_count; returns how many.';

create view trax.new_job as
select
    null::text as task,
    null::jsonb as input,
    null::timestamptz as run_at,
    null::text as group_name,
    null::int as priority,
    null::int as max_retries,
    null::interval as timeout,
    null::text as unique_key,
    null::text as concurrency_key,
    null::jsonb as trace,
    null::interval as retry_delay,
    null::interval as unique_for,
    null::text as version,
    null::bigint as batch,
    null::text as rate,
    null::text as rate_key,
    null::int as cost,
    null::text as on_duplicate
where false;
comment on view trax.new_job is
    'Takes new jobs by COPY and INSERT: a row is a job, as trax.enqueue would queue it, at once and for good. Has no rows.';

create function trax_router.take_new_job()
returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform trax.enqueue(
        new.task, coalesce(new.input, '{}'), new.run_at, new.group_name, coalesce(new.priority, 0), new.max_retries,
        new.timeout, new.unique_key, new.concurrency_key, new.trace, new.retry_delay, new.unique_for,
        new.version, new.batch, new.rate, new.rate_key, coalesce(new.cost, 1), new.on_duplicate
    );
    return new;
end;
$$;
comment on function trax_router.take_new_job() is 'Internal. Makes a job of a row.';
create trigger take_new_job
instead of insert on trax.new_job
for each row execute function trax_router.take_new_job();
