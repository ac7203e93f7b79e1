-- Access levels of roles. Nothing is granted to PUBLIC.

create function trax.limited_access()
returns void
language sql immutable
set search_path = pg_catalog, pg_temp
as '';
comment on function trax.limited_access() is
    'Internal. Does nothing: a role that may execute it is limited to what trax.access_scope lists, and to nothing when that has no row for it.';

create function trax.functions_of(
    level text
)
returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    -- The functions that each level may call in addition to the level before it.
    reader_functions constant text[] := array['status', 'check', 'diagnose', 'metrics', 'preview', 'preview_cron', 'explain_manifest', 'explain_job', 'read_steps', 'read_needs', 'read_graph', 'read_rate', 'get_jobs', 'await_job', 'await_jobs', 'shard_of', 'where_is'];
    producer_functions constant text[] := array[
        'enqueue', 'enqueue_many', 'enqueue_sql', 'enqueue_graph', 'open_batch', 'seal_batch', 'limit_queue_time', 'trigger', 'cancel', 'change_job', 'run_now', 'record_again', 'send_signal', 'fork', 'read_steps', 'read_needs', 'read_graph', 'get_jobs', 'await_job', 'await_jobs', 'shard_of', 'where_is', 'acquire_token', 'await_token', 'extend_token', 'release_token', 'consume_rate'
    ];
    worker_functions constant text[] := array[
        'claim_next', 'activate', 'complete_and_claim', 'wait_for_work', 'heartbeat', 'complete', 'complete_many', 'fail', 'release', 'acknowledge_cancel', 'cancel_own', 'record_step',
        'read_steps', 'sleep', 'await_signal', 'send_signal', 'spawn', 'await_children', 'enqueue',
        'enqueue_many', 'enqueue_graph', 'open_batch', 'seal_batch', 'read_needs', 'read_graph', 'limit_queue_time', 'acquire_token', 'await_token', 'extend_token', 'release_token', 'consume_rate', 'close_rate',
        'report_progress', 'report_worker', 'waiting_tasks', 'runs_as_stored', 'get_jobs', 'await_job', 'await_jobs', 'shard_of', 'where_is'
    ];
    admin_functions constant text[] := reader_functions || producer_functions || worker_functions || array[
        'schedule', 'unschedule', 'enable_manifest', 'disable_manifest', 'trigger_group', 'apply', 'cancel_manifest',
        'cancel_group', 'configure_group', 'configure_rate', 'drop_rate', 'configure_task', 'reset_task', 'requeue_dead_letter', 'requeue_dead_letters',
        'acknowledge_dead_letter', 'tick', 'pause', 'resume', 'believe_clock', 'adopt', 'set_shard', 'start_scheduler', 'grant_access', 'revoke_access'
    ];
    -- A token and a rate have no task and no group: all roles share their names.
    token_functions constant text[] := array[
        'acquire_token', 'await_token', 'extend_token', 'release_token', 'consume_rate', 'close_rate'
    ];
begin
    return case level
        when 'reader' then reader_functions
        when 'producer' then producer_functions
        when 'worker' then worker_functions
        when 'admin' then admin_functions
        when 'limited producer' then (
            select array_agg(f) || array['limited_access'] from unnest(producer_functions) f where f <> all (token_functions)
        )
        when 'limited worker' then (
            select array_agg(f) || array['limited_access'] from unnest(worker_functions) f where f <> all (token_functions)
        )
    end;
end;
$$;
comment on function trax.functions_of(text) is
    'Internal. Returns the functions that a level may call, the levels in it included; null for an unknown level. A limited producer or worker is one with a scope.';

create function trax.rights_of(
    level text
)
returns table (
    object text,
    privilege text,
    columns text
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select 'schema trax', 'usage', null
    where trax.functions_of($1) is not null
    union all
    select format('routine %s', p.oid::regprocedure), 'execute', null
    from pg_proc p
    where p.pronamespace = 'trax'::regnamespace
        and p.proname = any (trax.functions_of($1))
    union all
    select format('table trax.%I', 'new_job'), 'insert', null
    where 'enqueue' = any (trax.functions_of($1))
    union all
    -- The holder of a lease's token may end its job: the level reader does not see tokens.
    select
        format('table trax.%I', c.relname),
        'select',
        case
            when $1 = 'reader' and bool_or(a.attname = 'token')
                then string_agg(quote_ident(a.attname), ', ' order by a.attnum) filter (where a.attname <> 'token')
        end
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relnamespace = 'trax'::regnamespace
        and c.relname in (
            'job', 'work_queue', 'lease', 'run', 'manifest', 'manifest_state', 'manifest_dependency', 'manifest_group', 'task', 'admission',
            'dead_letter', 'stopped_schedule', 'lane', 'unique_key', 'worker', 'instance', 'adoption', 'believed_clock', 'concurrency_limit',
            'concurrency_token', 'rate', 'rate_closure', 'rate_state',
            'concurrency_waiter', 'worker_state', 'lease_extension', 'progress', 'step', 'signal', 'need', 'need_event', 'graph', 'graph_job', 'failed_step', 'unreadable_job', 'access_scope', 'audit',
            'departure', 'arrival', 'group_home'
        )
        and $1 in ('reader', 'admin')
    group by c.relname
$$;
comment on function trax.rights_of(text) is
    'Internal. Returns the rights that a level has, as grant writes them: object, privilege and, where it is not on all of them, the columns.';

create function trax.limits_of(
    role name,
    level text
)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select concat(
        ', tasks => array[' || (select string_agg(quote_literal(t), ', ' order by t) from unnest(s.tasks) t) || ']',
        ', groups => array[' || (select string_agg(quote_literal(g), ', ' order by g) from unnest(s.groups) g) || ']'
    )
    from trax.access_scope s
    where s.role = $1
        and s.level = $2
$$;
comment on function trax.limits_of(name, text) is
    'Internal. Returns the limits of a role as arguments of trax.grant_access(); null when it has none.';

create function trax.grant_again(
    role name,
    level text
)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select format('select trax.grant_access(%L, %L%s)', quote_ident(o.role), $2, trax.limits_of(o.role, $2))
    from (
        select coalesce(
            (
                select r.rolname
                from trax.access_scope s
                join pg_roles r on r.rolname = s.role
                where s.level = $2
                    and pg_has_role($1, r.oid, 'usage')
                order by r.rolname <> $1, r.rolname
                limit 1
            ),
            $1
        ) as role
    ) o
$$;
comment on function trax.grant_again(name, text) is
    'Internal. Returns the call that grants a level to a role anew, or to the role through which it has the level with limits: these stay.';

create function trax.grant_access(
    role regrole,
    level text,
    tasks text[] default null,
    groups text[] default null
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    granted record;
    role_name text := (select r.rolname from pg_roles r where r.oid = role);
    -- A function that only this level and admin may call tells which level the role has.
    had constant text := (
        select l.level
        from (
            values (1, 'admin', 'schedule'), (2, 'worker', 'claim_next'), (3, 'producer', 'trigger'), (4, 'reader', 'explain_manifest')
        ) l (rank, level, only_its)
        join pg_proc p on p.pronamespace = 'trax'::regnamespace and p.proname = l.only_its
        join trax.granted_rights() g on g.kind = 'routine' and g.oid = p.oid and g.grantee = role
        order by l.rank
        limit 1
    );
    had_limits constant text := trax.limits_of(role_name, had);
    is_limited boolean := tasks is not null or groups is not null;
    named record;
begin
    if role is null then
        raise exception 'argument "role" must not be null'
            using errcode = '22004',
                detail = 'The argument "role" is null.',
                hint = 'Name a role: trax.grant_access(role => ''app'', level => ''worker'')';
    end if;
    if role_name is null then
        raise exception 'role "%" does not exist', role
            using errcode = '42704',
                detail = 'No row of pg_roles has this name or oid.',
                hint = 'Name a role: trax.grant_access(role => ''app'', level => ''worker'')';
    end if;
    if level is null then
        raise exception 'argument "level" must not be null'
            using errcode = '22004',
                detail = 'The argument "level" is null.',
                hint = 'Specify one of: reader, producer, worker, admin, none.';
    end if;
    if level not in ('none', 'reader', 'producer', 'worker', 'admin') then
        raise exception 'access level "%" does not exist', level
            using errcode = '22023',
                detail = 'The levels are reader, producer, worker, admin and none.',
                hint = 'Specify one of: reader, producer, worker, admin, none.';
    end if;
    if is_limited and level not in ('producer', 'worker') then
        raise exception 'access level "%" has no limits', level
            using errcode = '22023',
                detail = 'Only a producer or a worker can be limited to tasks and groups.',
                hint = 'Leave out tasks and groups, or use the level producer or worker.';
    end if;
    for named in
        select n.argument, n.names
        from (values ('tasks', tasks), ('groups', groups)) n (argument, names)
        where n.names is not null
    loop
        if array_position(named.names, null) is not null then
            raise exception 'argument "%" must not be null', named.argument
                using errcode = '22004',
                    detail = format('An element of "%s" is null.', named.argument),
                    hint = format('Name each: %s => array[''mail.send'']', named.argument);
        end if;
        if cardinality(named.names) = 0 or '' = any (named.names) then
            raise exception 'argument "%" must not be empty', named.argument
                using errcode = '22023',
                    detail = 'With no name, or an empty one, the role could do nothing.',
                    hint = format('Name at least one: %1$s => array[''mail.send'']; or leave %1$s out for all', named.argument);
        end if;
    end loop;
    for named in
        select n.argument, t.name
        from (values ('tasks', tasks), ('groups', groups)) n (argument, names)
        cross join unnest(n.names) t (name)
        where t.name ~ '^[[:space:]]|[[:space:]]$'
    loop
        raise exception 'argument "%" must not begin or end with white space', named.argument
            using errcode = '22023',
                detail = format('%s has "%s".', named.argument, named.name),
                hint = format('Specify the name alone: %L', regexp_replace(named.name, '^[[:space:]]+|[[:space:]]+$', '', 'g'));
    end loop;
    -- The owner has every right already, and must keep them.
    if exists (
        select
        from pg_namespace n
        where n.nspname = 'trax'
            and n.nspowner = role
    ) then
        return;
    end if;
    -- Under its lock nothing can be attached to the table any more.
    lock table trax.access_scope in row exclusive mode;
    perform trax.refuse_foreign_code();
    perform trax.withdraw_rights(role);
    -- The role's own row, and those of renamed or dropped roles.
    delete from trax.access_scope s
    where not exists (
        select
        from trax.granted_rights() g
        where g.kind = 'routine'
            and g.oid = 'trax.limited_access'::regproc
            and pg_get_userbyid(g.grantee) = s.role
    );
    if is_limited then
        insert into trax.access_scope (role, level, tasks, groups)
        values (
            role_name,
            level,
            case when tasks is not null then array(select distinct t from unnest(tasks) t order by t) end,
            case when groups is not null then array(select distinct g from unnest(groups) g order by g) end
        );
    end if;
    for granted in
        select r.privilege || coalesce(' (' || r.columns || ')', '') as privilege, r.object
        from trax.rights_of(case when is_limited then 'limited ' else '' end || level) r
    loop
        execute format('grant %s on %s to %s', granted.privilege, granted.object, role);
    end loop;
    -- The statements that run or wait as the role end, and no schedule begins more.
    -- Jobs before manifests, as an outcome locks them.
    if level = 'none' then
        perform trax.cancel(j.job_id)
        from (
            select q.job_id
            from trax.work_queue q
            where q.run_as = role_name
            union all
            select l.job_id
            from trax.lease l
            where l.run_as = role_name
        ) j;
        perform trax.disable_manifest(m.name)
        from trax.manifest m
        where m.run_as = role_name
            and m.enabled;
    end if;
    if had <> level and level not in ('none', 'admin') then
        raise notice 'role "%" no longer has the level "%"', role_name, had
            using detail = format('A role has one level: %s replaces %s.', level, had),
                hint = case had
                    when 'admin' then format('An admin has every level; to grant it again: select trax.grant_access(%L, ''admin'')', quote_ident(role_name))
                    else format(
                        'To keep both, grant %s to a role that %I is a member of; then: select trax.grant_access(%L, %L%s)',
                        level, role_name, quote_ident(role_name), had, had_limits
                    )
                end;
    end if;
    insert into trax.audit (action, kind, name, note)
    values (
        case level when 'none' then 'revoke' else 'grant' end,
        'role',
        role_name,
        concat_ws('; ', nullif(level, 'none'), 'tasks: ' || array_to_string(tasks, ', '), 'groups: ' || array_to_string(groups, ', '))
    );
end;
$$;
comment on function trax.grant_access(regrole, text, text[], text[]) is
    'Sets what a role may do from its next transaction on. tasks and groups limit a producer or worker to jobs of these tasks in these groups, without tokens; null is every one. The levels: reader (tables without tokens, status, check, diagnose, metrics, results), producer (enqueue, limit_queue_time, trigger, cancel, run_now, results, tokens), worker (claim and outcomes, enqueue, results, tokens), admin (everything), none.';

create function trax.revoke_access(
    role regrole
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    if role is null then
        raise exception 'argument "role" must not be null'
            using errcode = '22004',
                detail = 'The argument "role" is null.',
                hint = 'Name a role: trax.revoke_access(role => ''app'')';
    end if;
    perform trax.grant_access(role, 'none');
end;
$$;
comment on function trax.revoke_access(regrole) is
    'Revokes all that trax.grant_access granted to a role, which can then be dropped, cancels the statements that run or wait as it, and disables its schedules.';

create function trax.regrant_access(
    role regrole,
    level text
)
returns void
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_regrant_access';
comment on function trax.regrant_access(regrole, text) is
    'Internal. Calls trax.grant_access in an update of the extension, as if outside of it: a dump leaves out what an update itself grants.';
