-- Who may do what. Nothing is granted to PUBLIC.

create function trax.functions_of(
    level text
)
returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    -- What each level may call beyond the level before it.
    reader_functions constant text[] := array['status', 'check', 'diagnose', 'metrics', 'preview', 'preview_cron', 'explain_manifest'];
    producer_functions constant text[] := array[
        'enqueue', 'enqueue_many', 'limit_queue_time', 'trigger', 'cancel', 'run_now', 'acquire_token', 'await_token', 'extend_token', 'release_token'
    ];
    worker_functions constant text[] := array[
        'claim_next', 'activate', 'complete_and_claim', 'wait_for_work', 'heartbeat', 'complete', 'complete_many', 'fail', 'release', 'acknowledge_cancel', 'cancel_own', 'enqueue',
        'enqueue_many', 'limit_queue_time', 'acquire_token', 'await_token', 'extend_token', 'release_token',
        'report_progress', 'waiting_tasks'
    ];
    admin_functions constant text[] := reader_functions || producer_functions || worker_functions || array[
        'schedule', 'unschedule', 'enable_manifest', 'disable_manifest', 'trigger_group', 'apply', 'cancel_manifest',
        'cancel_group', 'configure_group', 'requeue_dead_letter', 'requeue_dead_letters',
        'acknowledge_dead_letter', 'tick', 'pause', 'resume', 'adopt', 'start_scheduler', 'grant_access'
    ];
begin
    return case level
        when 'reader' then reader_functions
        when 'producer' then producer_functions
        when 'worker' then worker_functions
        when 'admin' then admin_functions
    end;
end;
$$;
comment on function trax.functions_of(text) is
    'Internal. The functions that a level may call, the levels in it included; null for an unknown level.';

create function trax.grant_access(
    role regrole,
    level text
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    reads constant text[] := array[
        'job', 'work_queue', 'lease', 'run', 'manifest', 'manifest_state', 'manifest_dependency', 'manifest_group',
        'dead_letter', 'lane', 'unique_key', 'worker', 'instance', 'adoption', 'concurrency_limit', 'concurrency_token',
        'concurrency_waiter',
        'progress'
    ];
    granted text[];
    object regprocedure;
    relation text;
begin
    if role is null then
        raise exception 'argument "role" must not be null'
            using errcode = '22004',
                detail = 'The call gives null for "role".',
                hint = 'Name a role: trax.grant_access(role => ''app'', level => ''worker'')';
    end if;
    if not exists (
        select
        from pg_roles r
        where r.oid = role
    ) then
        raise exception 'role "%" does not exist', role
            using errcode = '42704',
                detail = 'No row of pg_roles has this name or oid.',
                hint = 'Name a role: trax.grant_access(role => ''app'', level => ''worker'')';
    end if;
    if level is null then
        raise exception 'argument "level" must not be null'
            using errcode = '22004',
                detail = 'The call gives null for "level".',
                hint = 'Give one of: reader, producer, worker, admin.';
    end if;
    granted := trax.functions_of(level);
    if granted is null then
        raise exception 'access level "%" does not exist', level
            using errcode = '22023',
                detail = 'The levels are reader, producer, worker and admin.',
                hint = 'Give one of: reader, producer, worker, admin.';
    end if;
    execute format('grant usage on schema trax to %s', role);
    for object in
        select p.oid::regprocedure
        from pg_proc p
        where p.pronamespace = 'trax'::regnamespace
            and p.proname = any (granted)
    loop
        execute format('grant execute on routine %s to %s', object, role);
    end loop;
    if 'enqueue' = any (granted) then
        execute format('grant insert on trax.new_job to %s', role);
    end if;
    if level in ('reader', 'admin') then
        foreach relation in array reads
        loop
            execute format('grant select on trax.%I to %s', relation, role);
        end loop;
    end if;
end;
$$;
comment on function trax.grant_access(regrole, text) is
    'Grants a role what a level needs: reader (tables, status, check, diagnose, metrics), producer (enqueue, limit_queue_time, trigger, cancel, run_now, tokens), worker (claim and outcomes, enqueue, tokens), admin (everything).';
