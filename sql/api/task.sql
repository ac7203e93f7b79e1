-- The defaults of tasks.

create function trax.configure_task(
    task text,
    max_retries int default null,
    retry_delay interval default null,
    backoff float8 default null,
    retry_delay_max interval default null,
    timeout interval default null,
    on_final_failure text default null
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_configure_task';
comment on function trax.configure_task(text, int, interval, float8, interval, interval, text) is
    'Creates or changes the defaults of a task; omitted arguments keep their value. max_retries, retry_delay and timeout are those of the jobs that are queued from then on without a value of their own; backoff, retry_delay_max and on_final_failure count at once. on_final_failure: ''dead_letter'', or ''acknowledge'': the dead letter of a job that fails for good is acknowledged already, and its manifest goes on.';

create function trax.reset_task(
    task text
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_reset_task';
comment on function trax.reset_task(text) is
    'Removes the defaults of a task, which must have some; then the settings apply. Jobs that are queued keep theirs.';

-- Fires for every statement: a session learns of a change by the invalidation of the table's key.
create function trax.settings_changed()
returns trigger
language c
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_settings_changed';
comment on function trax.settings_changed() is
    'Internal. Makes all sessions read the settings in a table again, when the statement''s transaction has committed.';
create trigger manifest_group_settings_changed
before insert or update or delete or truncate on trax.manifest_group
for each statement execute function trax.settings_changed();
create trigger task_settings_changed
before insert or update or delete or truncate on trax.task
for each statement execute function trax.settings_changed();
