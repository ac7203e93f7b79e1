-- As Oban's migrations make them, as of version 12 of these.
create type oban_job_state as enum
    ('available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
create table oban_jobs (
    id bigserial primary key,
    state oban_job_state not null default 'available',
    queue text not null default 'default',
    worker text not null,
    args jsonb not null default '{}',
    errors jsonb[] not null default '{}',
    attempt int not null default 0,
    max_attempts int not null default 20,
    inserted_at timestamp not null default timezone('UTC', now()),
    scheduled_at timestamp not null default timezone('UTC', now()),
    attempted_at timestamp,
    completed_at timestamp,
    attempted_by text[],
    discarded_at timestamp,
    priority int not null default 0,
    tags text[] default '{}',
    meta jsonb default '{}',
    cancelled_at timestamp
);
insert into oban_jobs (state, queue, worker, args, attempt, scheduled_at, priority) values
    ('available', 'mail', 'Shop.Mailer', '{"n": 1}', 0, timezone('UTC', now()), 0),
    ('scheduled', 'mail', 'Shop.Mailer', '{"n": 2}', 0, '2099-01-01', 3),
    ('retryable', 'media', 'Shop.Resize', '{"n": 3}', 19, timezone('UTC', now()), 9),
    ('executing', 'media', 'Shop.Resize', '{"n": 4}', 1, timezone('UTC', now()), 0),
    ('completed', 'media', 'Shop.Resize', '{"n": 5}', 1, timezone('UTC', now()), 0);
