-- Tables and functions that trax is compared with.

create schema bench;

-- A minimal queue.
create table bench.plain (
    id bigint generated always as identity primary key,
    payload jsonb not null
);

-- A table with the shape of a waiting job.
create table bench.shape (like trax.work_queue including all);

-- The signature of trax.enqueue, without its queue logic.
create function bench.enqueue(task text, input jsonb)
returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    id bigint;
begin
    insert into bench.shape (lane_id, queued_at, run_at, task, group_name, input)
    values (1, clock_timestamp(), clock_timestamp(), task, 'default', input)
    returning job_id into id;
    return id;
end;
$$;
