-- The table as pg_cron has it.
create schema cron;
create table cron.job (
    jobid bigint generated always as identity primary key,
    schedule text not null,
    command text not null,
    nodename text not null default 'localhost',
    nodeport int not null default current_setting('port')::int,
    database text not null default current_database(),
    username text not null default current_user,
    active boolean not null default true,
    jobname text
);
insert into cron.job (schedule, command, jobname) values
    ('0 3 * * *', 'delete from event where at < now() - interval ''30 days''', 'trim events'),
    ('*/5 * * * *', 'refresh materialized view events_by_day', 'refresh');
create table event (at timestamptz);
insert into event select now() - n * interval '20 days' from generate_series(0, 4) n;
create materialized view events_by_day as select at::date as day, count(*) from event group by 1;
