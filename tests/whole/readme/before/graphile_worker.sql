-- As graphile-worker 0.16 makes them.
create schema graphile_worker;
create table graphile_worker._private_tasks (id int generated always as identity primary key, identifier text not null unique);
create table graphile_worker._private_job_queues (
    id int generated always as identity primary key, queue_name text not null unique, locked_at timestamptz, locked_by text);
create table graphile_worker._private_jobs (
    id bigint generated always as identity primary key,
    job_queue_id int,
    task_id int not null,
    payload json default '{}'::json not null,
    priority smallint default 0 not null,
    run_at timestamptz default now() not null,
    attempts smallint default 0 not null,
    max_attempts smallint default 25 not null,
    last_error text,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    key text unique,
    locked_at timestamptz,
    locked_by text,
    revision int default 0 not null,
    flags jsonb,
    is_available boolean generated always as ((locked_at is null) and (attempts < max_attempts)) stored not null
);
insert into graphile_worker._private_tasks (identifier) values ('send_mail'), ('sync');
insert into graphile_worker._private_job_queues (queue_name) values ('customer 7');
insert into graphile_worker._private_jobs (job_queue_id, task_id, payload, priority, run_at, attempts, key, locked_at) values
    (1, 2, '{"n": 1}', -5, now(), 0, null, null),
    (1, 2, '{"n": 2}', 0, '2099-01-01 00:00 UTC', 3, 'nightly', null),
    (null, 1, '{"n": 3}', 0, now(), 25, null, null),
    (null, 1, '{"n": 4}', 0, now(), 1, null, now());
