-- move: a group goes to another shard. trax_router.move_group() calls these functions. A first
-- transaction takes a batch out here and adds it to trax.departure; another inserts it there and
-- notes it in trax.arrival. Meanwhile the router waits, so no function here waits long for a lock.

create function trax.refuse_ties(
    group_name text
)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    tie record;
    family bigint;
begin
    select c.name as child, c.group_name as child_group, p.name as parent, p.group_name as parent_group
    into tie
    from trax.manifest_dependency d
    join trax.manifest c on c.manifest_id = d.child_id
    join trax.manifest p on p.manifest_id = d.parent_id
    where (c.group_name = group_name) <> (p.group_name = group_name)
    order by c.name, p.name
    limit 1;
    if found then
        raise exception 'group "%" has a dependency with another group', group_name
            using errcode = '0A000',
                detail = format(
                    'Manifest "%s" of group "%s" depends on manifest "%s" of group "%s", and both must be on one shard.',
                    tie.child, tie.child_group, tie.parent, tie.parent_group
                ),
                hint = 'Put both manifests into one group, or remove the dependency; then move the group.';
    end if;
    select l.job_id
    into family
    from (
        select q.job_id
        from trax.work_queue q
        where q.group_name = group_name
            and (
                q.parent_job_id is not null
                or q.waits_for = 'jobs'
                or exists (select from trax.graph_job g where g.job_id = q.job_id)
                or exists (select from trax.graph g where g.graph_id = q.job_id)
            )
        union all
        select l.job_id
        from trax.lease l
        where l.group_name = group_name
            and (
                l.parent_job_id is not null
                or exists (select from trax.graph_job g where g.job_id = l.job_id)
                or exists (select from trax.graph g where g.graph_id = l.job_id)
            )
    ) l
    limit 1;
    if family is not null then
        raise exception 'job % of group "%" has spawned jobs, was spawned or is of a graph', family, group_name
            using errcode = '55000',
                detail = 'Parents and children, and the jobs of a graph or batch, are on one shard, and cannot move while one of them waits or runs.',
                hint = format('Wait until they have ended, or end them: select trax.cancel(%s); then move the group.', family);
    end if;
end;
$$;
comment on function trax.refuse_ties(text) is
    'Internal. Refuses a group of which a manifest depends on one of another group, or the other way round, or a living job has a parent, waits for others or is of a graph.';

create function trax.survey_group(
    group_name text
)
returns table (
    settings jsonb,
    has_work boolean,
    has_rest boolean,
    departs boolean,
    has_left boolean
)
language sql stable
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
    select
        (
            select to_jsonb(g)
            from trax.manifest_group g
            where g.name = $1
        ),
        exists (select from trax.manifest m where m.group_name = $1)
            or exists (select from trax.work_queue q where q.group_name = $1)
            or exists (select from trax.lease l where l.group_name = $1),
        exists (select from trax.dead_letter d where d.group_name = $1 and d.resolved_at is null)
            or exists (
                select
                from trax.unique_key k
                join trax.run r on r.job_id = k.job_id
                where k.ended
                    and r.group_name = $1
            ),
        exists (select from trax.departure d where d.group_name = $1),
        exists (select from trax.group_home h where h.group_name = $1 and h.has_left)
$$;
comment on function trax.survey_group(text) is
    'Internal. Returns what this database has of a group: its settings, whether it has manifests or live jobs, unresolved dead letters or living keys of ended jobs, a batch on its way to another shard, and whether all of it has left since it was placed here. Called by trax_router.move_group().';

create function trax.put_settings(
    group_name text,
    settings jsonb,
    placed_at bigint
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_variable
begin
    -- The lock waits for the call of a mover that is gone and sees no row yet.
    lock table trax.departure in share row exclusive mode;
    insert into trax.group_home as h (group_name, placed_at)
    values (group_name, placed_at)
    on conflict on constraint group_home_pkey do update
    set placed_at = excluded.placed_at, has_left = false
    where h.placed_at <= excluded.placed_at;
    -- A late call of a mover that is gone.
    if not found then
        return;
    end if;
    perform trax.configure_group(
        group_name,
        case when settings ? 'max_active_jobs' then coalesce((settings ->> 'max_active_jobs')::int, 0) end,
        (settings ->> 'priority')::int,
        (settings ->> 'enabled')::boolean,
        (settings ->> 'max_per_key')::int,
        case when settings ? 'rate' then coalesce(settings ->> 'rate', '') end,
        case when settings ? 'max_waiting' then coalesce((settings ->> 'max_waiting')::int, 0) end,
        settings ->> 'overflow'
    );
    update trax.manifest_group g
    set applied = (settings ->> 'applied')::boolean, source = settings ->> 'source'
    where g.name = group_name
        and settings ? 'applied';
end;
$$;
comment on function trax.put_settings(text, jsonb, bigint) is
    'Internal. Makes this the home of a group, which no move from before placed_at takes away, and gives it the settings that trax.survey_group() returned on another shard; what is not among them stays. Called by trax_router.move_group().';

create function trax.departed(
    manifests text[],
    group_name text
)
returns table (
    manifest text,
    of_group text
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select m.name, d.group_name
    from trax.departure d
    cross join lateral (
        select c ->> 'name'
        from jsonb_array_elements(d.cargo -> 'manifests') c
        where c ->> 'name' = any ($1)
        union all
        select null
        where d.group_name = $2
    ) m (name)
    order by 2, 1
    limit 1
$$;
comment on function trax.departed(text[], text) is
    'Internal. Returns one of these manifests that is on its way to another shard, and its group; or a null and this group when any of it is.';

create function trax.depart(
    group_name text,
    target int,
    max_count int default 1000,
    placed_at bigint default null
)
returns table (
    batch uuid,
    to_shard int,
    count int,
    cargo jsonb,
    is_over boolean
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_variable
declare
    max_bytes constant int := 8 * 1024 * 1024;
    was_at_work boolean;
    taken jsonb;
begin
    perform trax.refuse_foreign_code();
    -- Allows one batch at a time; the call of a mover that is gone may still be running.
    lock table trax.departure in share row exclusive mode;
    return query
    select d.batch, d.target, coalesce(jsonb_array_length(d.cargo -> 'jobs'), 0), d.cargo, false
    from trax.departure d
    where d.group_name = group_name;
    if found then
        return;
    end if;
    if target is null then
        return query select null::uuid, null::int, 0, null::jsonb, true;
        return;
    end if;
    if exists (
        select
        from trax.group_home h
        where h.group_name = group_name
            and h.placed_at > placed_at
    ) then
        raise exception 'group "%" has since been placed here again', group_name
            using errcode = '55000',
                detail = 'The call belongs to a move that a later one has replaced.',
                hint = 'Move the group again: trax group move NAME --to SHARD';
    end if;
    -- Neither a document nor its pruning may remove the row that disables the group here.
    update trax.manifest_group g
    set applied = false, source = null
    where g.name = group_name
        and (
            g.applied
            or g.source is not null
        );
    -- Claims end when this has committed; jobs claimed before end here. A group that has left
    -- completely is not created again: another shard may take longer.
    if coalesce(
        (select g.enabled from trax.manifest_group g where g.name = group_name),
        exists (select from trax.lease l where l.group_name = group_name)
            or exists (select from trax.work_queue q where q.group_name = group_name)
            or exists (select from trax.manifest m where m.group_name = group_name)
    ) then
        perform trax.refuse_ties(group_name);
        perform trax.configure_group(group_name, enabled => false);
        return query select null::uuid, null::int, 0, null::jsonb, false;
        return;
    end if;
    -- Checked before anything is taken: jobs that end later leave a dead letter or a key that must
    -- follow.
    select s.has_work
    into was_at_work
    from trax.survey_group(group_name) s;
    taken := coalesce(
        trax.take_jobs(group_name, max_count, max_bytes),
        trax.take_letters(group_name, target, max_count, max_bytes),
        trax.take_manifests(group_name, target, max_count, max_bytes),
        trax.take_keys(group_name)
    );
    if taken is not null then
        return query
        insert into trax.departure as d (group_name, target, cargo)
        values (group_name, target, taken)
        returning d.batch, d.target, coalesce(jsonb_array_length(d.cargo -> 'jobs'), 0), d.cargo, false;
        return;
    end if;
    if was_at_work then
        return query select null::uuid, null::int, 0, null::jsonb, false;
        return;
    end if;
    insert into trax.group_home as h (group_name, placed_at, has_left)
    values (group_name, coalesce(placed_at, 0), true)
    on conflict on constraint group_home_pkey do update
    set has_left = true;
    delete from trax.admission a
    where a.group_name = group_name;
    delete from trax.manifest_group g
    where g.name = group_name;
    if found then
        insert into trax.audit (action, kind, name, note)
        values ('move', 'group', group_name, format('to shard %s', target));
    end if;
    return query select null::uuid, null::int, 0, null::jsonb, true;
end;
$$;
comment on function trax.depart(text, int, int, bigint) is
    'Internal. Takes the next batch of a group that moves to another shard out of this database, or returns that which is on its way: its identity, its shard, how many jobs it has and its rows. Disables the group here at first, so that what runs ends and nothing else is claimed. With target null nothing else is taken, and nothing by a move from before the group was placed here last. A null batch: there is nothing to take now; is_over: nothing of the group is left here. Called by trax_router.move_group().';

create function trax.end_departure(
    group_name text,
    batch uuid
)
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
    delete from trax.departure d
    where d.group_name = $1
        and d.batch = $2
$$;
comment on function trax.end_departure(text, uuid) is
    'Internal. Forgets a batch that has arrived. Called by trax_router.move_group().';

create function trax.arrive(
    source int,
    group_name text,
    batch uuid,
    cargo jsonb
)
returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s'
as $$
#variable_conflict use_variable
declare
    missing text;
    known_jobs bigint[];
begin
    perform trax.refuse_foreign_code();
    insert into trax.arrival (source, group_name, batch)
    values (source, group_name, batch)
    on conflict on constraint arrival_pkey do nothing;
    if not found then
        return false;
    end if;
    -- A group has one batch on its way at a time: earlier batches have arrived there.
    delete from trax.arrival a
    where a.source = source
        and a.group_name = group_name
        and a.batch <> batch
        and a.arrived_at < least(clock_timestamp(), (select j.believed_at from trax.clock_jump() j)) - interval '7 days';
    select r.run_as
    into missing
    from (
        select j ->> 'run_as' from jsonb_array_elements(cargo -> 'jobs') j
        union all
        select m ->> 'run_as' from jsonb_array_elements(cargo -> 'manifests') m
    ) r (run_as)
    where r.run_as not in (select pg_get_userbyid(u.oid) from pg_roles u)
    limit 1;
    if missing is not null then
        raise exception 'role "%" does not exist on the shard that group "%" moves to', missing, group_name
            using errcode = '42704',
                detail = 'A statement of the group runs as this role.',
                hint = format('Create it there: create role %I login; then move the group again.', missing);
    end if;
    if exists (
        select
        from jsonb_each(cargo) part (kind, list)
        cross join jsonb_array_elements(part.list) entry
        where part.kind in ('jobs', 'dead_letters', 'manifests', 'states')
            and entry ->> 'group_name' is distinct from group_name
    ) then
        raise exception 'the batch has rows that are not of group "%"', group_name
            using errcode = '22023',
                detail = format('Shard %s sent it.', source),
                hint = 'Nothing has arrived. Look at trax.departure on that shard.';
    end if;
    perform trax.put_manifests(cargo);
    known_jobs := trax.known_jobs(cargo);
    insert into trax.unique_key (key, job_id, ended, alive_until)
    select k.key, k.job_id, k.ended, k.alive_until
    from jsonb_populate_recordset(null::trax.unique_key, cargo -> 'keys') k
    where k.job_id <> all (known_jobs)
    order by k.key
    on conflict (key) do nothing;
    -- A key that belongs to another job by now stays with it: both run.
    insert into trax.work_queue (
        job_id, lane_id, queued_at, run_at, scheduled_for, expires_at, manifest_id, attempts, max_retries, priority,
        scheduled, waits_for, task, group_name, manifest, timeout, retry_delay, unique_key, concurrency_key, input, trace,
        run_as, steps, wait_until, version, rate, rate_key, cost
    )
    overriding system value
    select
        q.job_id,
        trax.lane_of(q.group_name, q.task, q.run_as, q.version, q.rate, q.rate_key),
        q.queued_at, q.run_at, q.scheduled_for, q.expires_at, m.manifest_id, q.attempts, q.max_retries, q.priority,
        -- A manifest that was created here meanwhile may have its entry.
        q.scheduled
            and m.manifest_id is not null
            and not exists (select from trax.work_queue w where w.manifest_id = m.manifest_id and w.scheduled),
        case when q.waits_for = 'signal' then q.waits_for when q.run_at > clock_timestamp() then 'time' end,
        q.task, q.group_name, m.name, q.timeout, q.retry_delay, k.key, q.concurrency_key,
        trax.input_here(q.input, q.run_as), q.trace, q.run_as, q.steps, q.wait_until,
        q.version, q.rate, q.rate_key, q.cost
    from jsonb_populate_recordset(null::trax.work_queue, cargo -> 'jobs') q
    left join trax.manifest m on m.name = q.manifest
    left join trax.unique_key k on k.key = q.unique_key and k.job_id = q.job_id
    where q.job_id <> all (known_jobs)
    order by q.job_id
    on conflict (job_id) do nothing;
    insert into trax.admission (group_name, number, job_id)
    select
        q.group_name,
        coalesce((select max(a.number) from trax.admission a where a.group_name = q.group_name), 0)
            + row_number() over (order by q.job_id),
        q.job_id
    from jsonb_populate_recordset(null::trax.work_queue, cargo -> 'jobs') q
    join trax.manifest_group g on g.name = q.group_name and g.max_waiting is not null
    where q.job_id <> all (known_jobs)
        and q.manifest is null;
    insert into trax.step (job_id, recorded_at, attempt, timed_out, step, kind, output, wait, undo)
    select s.job_id, s.recorded_at, s.attempt, s.timed_out, s.step, s.kind, s.output, s.wait, s.undo
    from jsonb_populate_recordset(null::trax.step, cargo -> 'steps') s
    where s.job_id <> all (known_jobs)
    order by s.step_id
    on conflict do nothing;
    insert into trax.signal
    select s.*
    from jsonb_populate_recordset(null::trax.signal, cargo -> 'signals') s
    where s.job_id <> all (known_jobs)
    on conflict do nothing;
    insert into trax.dead_letter (
        id, job_id, manifest_id, status, attempts, max_retries, priority, created_at, manifest, task, group_name, timeout,
        retry_delay, unique_key, concurrency_key, reason, last_error, input, trace, run_as, steps, undone,
        version, rate, rate_key, cost
    )
    overriding system value
    select
        d.id, d.job_id, m.manifest_id, 'awaiting_intervention', d.attempts, d.max_retries, d.priority, d.created_at, m.name, d.task,
        d.group_name, d.timeout, d.retry_delay, d.unique_key, d.concurrency_key, d.reason, d.last_error,
        trax.input_here(d.input, d.run_as), d.trace, d.run_as, d.steps, coalesce(d.undone, false),
        d.version, d.rate, d.rate_key, d.cost
    from jsonb_populate_recordset(null::trax.dead_letter, cargo -> 'dead_letters') d
    left join trax.manifest m on m.name = d.manifest
    order by d.id
    on conflict (id) do update
    set status = excluded.status, resolved_at = null, resolution_note = null, manifest_id = excluded.manifest_id,
        manifest = excluded.manifest
    where dead_letter.group_name = excluded.group_name
        -- A letter that moved away from here comes back; any other was resolved here.
        and dead_letter.status = 'acknowledged'
        and coalesce(dead_letter.resolution_note, '') ~ '^moved to shard [0-9]+$';
    return true;
end;
$$;
comment on function trax.arrive(int, text, uuid, jsonb) is
    'Internal. Puts a batch of a group that trax.depart() took from another shard into this database; false when it is here already. Called by trax_router.move_group().';

create function trax.put_manifests(
    cargo jsonb
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    -- A manifest of this name that was created here meanwhile is newer and stays.
    insert into trax.manifest (
        name, task, input, group_name, cron, every, run_at, depends_mode, dormant, timezone, priority, max_retries,
        retry_delay, timeout, misfire, misfire_threshold, misfire_limit, overlap, max_concurrency, variance, exclusions,
        starts_at, ends_at, enabled, disabled_reason, applied, created_at, updated_at, on_dead_letter, source, run_as
    )
    select
        m.name, m.task, trax.input_here(m.input, m.run_as), m.group_name, m.cron, m.every, m.run_at, m.depends_mode,
        m.dormant, m.timezone, m.priority, m.max_retries, m.retry_delay, m.timeout, m.misfire, m.misfire_threshold, m.misfire_limit, m.overlap,
        m.max_concurrency, m.variance, m.exclusions, m.starts_at, m.ends_at, m.enabled, m.disabled_reason, m.applied,
        m.created_at, m.updated_at, m.on_dead_letter, m.source, m.run_as
    from jsonb_populate_recordset(null::trax.manifest, cargo -> 'manifests') m
    order by m.name
    on conflict (name) do nothing;
    -- Runs that were parked because their group left are due again: the next cycle decides.
    insert into trax.manifest_state (
        manifest_id, group_name, next_run_at, next_scheduled_for, parked_on, parked_since, parked_due_at,
        last_scheduled_for, last_queued_at, last_success_at, made_up, skipped, last_skipped_for, evaluation_failures,
        evaluation_failed_since, evaluation_error, decided_at
    )
    select
        m.manifest_id, s.group_name,
        case when p.left_here then s.parked_due_at else s.next_run_at end,
        case when p.left_here then s.parked_due_at else s.next_scheduled_for end,
        case when not p.left_here then s.parked_on end,
        case when not p.left_here then s.parked_since end,
        s.parked_due_at, s.last_scheduled_for, s.last_queued_at, s.last_success_at, s.made_up, s.skipped,
        s.last_skipped_for, s.evaluation_failures, s.evaluation_failed_since, s.evaluation_error, s.decided_at
    from jsonb_populate_recordset(null::trax.manifest_state, cargo -> 'states') s
    cross join lateral (select s.parked_on is not distinct from 'group_disabled') p (left_here)
    join jsonb_populate_recordset(null::trax.manifest, cargo -> 'manifests') o on o.manifest_id = s.manifest_id
    join trax.manifest m on m.name = o.name
    on conflict (manifest_id) do nothing;
    insert into trax.manifest_dependency (child_id, parent_id, satisfied_at, satisfied_by_job_id)
    select c.manifest_id, p.manifest_id, d.satisfied_at, d.satisfied_by_job_id
    from jsonb_populate_recordset(null::trax.manifest_dependency, cargo -> 'dependencies') d
    join jsonb_populate_recordset(null::trax.manifest, cargo -> 'manifests') oc on oc.manifest_id = d.child_id
    join jsonb_populate_recordset(null::trax.manifest, cargo -> 'manifests') op on op.manifest_id = d.parent_id
    join trax.manifest c on c.name = oc.name
    join trax.manifest p on p.name = op.name
    on conflict (child_id, parent_id) do nothing;
end;
$$;
comment on function trax.put_manifests(jsonb) is
    'Internal. Makes manifests of those that a batch has, with their states and dependencies; ids are new.';
