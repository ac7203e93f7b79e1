-- Manifests and groups.

create function trax.schedule(
    name text,
    task text default null,
    input jsonb default null,
    cron text default null,
    every interval default null,
    run_at timestamptz default null,
    depends_on text[] default null,
    depends_mode text default null,
    dormant boolean default null,
    timezone text default null,
    group_name text default null,
    priority int default null,
    max_retries int default null,
    retry_delay interval default null,
    timeout interval default null,
    misfire text default null,
    misfire_threshold interval default null,
    misfire_limit int default null,
    overlap text default null,
    max_concurrency int default null,
    variance interval default null,
    exclusions jsonb default null,
    starts_at timestamptz default null,
    ends_at timestamptz default null,
    enabled boolean default null,
    on_dead_letter text default null,
    sql text default null,
    run_as text default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_schedule';
comment on function trax.schedule(
    text, text, jsonb, text, interval, timestamptz, text[], text, boolean, text, text, int, int, interval, interval,
    text, interval, int, text, int, interval, jsonb, timestamptz, timestamptz, boolean, text,
    text, text
) is
    'Creates or changes a manifest and returns its id; an omitted argument keeps its value. The manifest runs as one of cron, every, run_at and depends_on says; without them, only when triggered. sql, instead of a task and its input, is a statement that the server runs as the calling role or run_as, as in trax.enqueue_sql(). Only that role, or a member of it that specifies run_as, changes the statement and the role; other changes keep them. Jobs that wait or run keep what they were queued with; a new schedule counts from now.';

create function trax.unschedule(
    name text
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_unschedule';
comment on function trax.unschedule(text) is
    'Removes a manifest and cancels its waiting jobs and their descendants; running jobs continue, history stays.';

create function trax.enable_manifest(
    name text
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_enable_manifest';
comment on function trax.enable_manifest(text) is
    'Enables a manifest. Its misfire policy decides about the occurrences that it missed.';

create function trax.disable_manifest(
    name text
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_disable_manifest';
comment on function trax.disable_manifest(text) is
    'Disables a manifest; jobs that wait or run continue.';

create function trax.trigger(
    name text,
    input jsonb default null,
    delay interval default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_trigger';
comment on function trax.trigger(text, jsonb, interval) is
    'Queues a job of a manifest, also of a disabled manifest, now or after a delay, with the manifest''s input or another, and returns its id.';

create function trax.trigger_group(
    group_name text
)
returns bigint
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_trigger_group';
comment on function trax.trigger_group(text) is
    'Queues a job of each enabled manifest of a group, except dormant ones, and returns how many.';

create function trax.activate(
    name text,
    input jsonb default null
)
returns bigint
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_activate';
comment on function trax.activate(text, jsonb) is
    'Queues a job of a dormant dependent and returns its id; only while a job of one of its parents is executed.';

create function trax.runs_as_stored(
    job_id bigint,
    token uuid
)
returns boolean
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    if job_id is null or token is null then
        raise exception 'argument "%" must not be null', case when job_id is null then 'job_id' else 'token' end
            using errcode = '22004',
                detail = format('The argument "%s" is null.', case when job_id is null then 'job_id' else 'token' end),
                hint = 'Pass both as trax.claim_next returned them: trax.runs_as_stored(job_id => ..., token => ...)';
    end if;
    return exists (
        select
        from trax.lease l
        join trax.manifest m on m.manifest_id = l.manifest_id
        where l.job_id = job_id
            and l.token = token
            and m.task = l.task
            and m.input = l.input
    );
end;
$$;
comment on function trax.runs_as_stored(bigint, uuid) is
    'Returns whether an executing job has the task and input that its manifest stores now; false without a manifest, or when the lease is lost.';

create function trax.cancel_manifest(
    name text
)
returns bigint
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_cancel_manifest';
comment on function trax.cancel_manifest(text) is
    'Cancels the live jobs of a manifest, as trax.cancel() does, and returns how many. The schedule continues.';

create function trax.cancel_group(
    name text
)
returns bigint
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_cancel_group';
comment on function trax.cancel_group(text) is
    'Cancels the live jobs of a group, as trax.cancel() does, and returns how many.';

create function trax.apply(
    document jsonb,
    prune boolean default false,
    dry_run boolean default false,
    source text default null
)
returns table (
    action text,
    kind text,
    name text,
    detail text
)
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_apply';
comment on function trax.apply(jsonb, boolean, boolean, text) is
    'Creates and changes the groups, manifests, rates and defaults of tasks of a document, and returns for each: created, changed (with what), unchanged or removed. prune removes manifests, rates, and settings of groups and tasks, that an earlier apply of the same source created and the document no longer has. dry_run changes nothing. What it names belongs to its source, a program or a repository, from then on; what belongs to another source is refused, or without source changed.';

create function trax.preview(
    name text,
    after timestamptz default now(),
    count int default 5
)
returns table (
    run_at timestamptz,
    local_time text,
    note text
)
language c stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_preview';
comment on function trax.preview(text, timestamptz, int) is
    'Returns the runs of a manifest after a time, with the local time in its zone and a note on skipped or repeated hours, exclusions and the variance.';

create function trax.preview_cron(
    expression text,
    timezone text default 'UTC',
    after timestamptz default now(),
    count int default 5
)
returns table (
    run_at timestamptz,
    local_time text,
    note text
)
language c stable parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_preview_cron';
comment on function trax.preview_cron(text, text, timestamptz, int) is
    'Returns the times of a cron expression in a zone after a time, as trax.preview() does; or the mistake in it, and where.';

create function trax.configure_group(
    name text,
    max_active_jobs int default null,
    priority int default null,
    enabled boolean default null,
    max_per_key int default null,
    rate text default null,
    max_waiting int default null,
    overflow text default null
)
returns void
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_configure_group';
comment on function trax.configure_group(text, int, int, boolean, int, text, int, text) is
    'Creates or changes the settings of a group; omitted arguments keep their value. max_active_jobs 0 is no limit, and an empty rate is none. max_waiting (0 is no limit) is how many jobs that producers queued may wait; beyond it overflow ''reject'' refuses the call (53400), ''drop_newest'' ends the new jobs as cancelled, and ''drop_oldest'' the oldest that have not begun. After the commit of enabled => false no claim of the group''s jobs commits.';
