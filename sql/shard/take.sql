-- take: the next batch of a group that moves to another shard, taken out of the tables.

create function trax.take_memory(
    job_ids bigint[]
)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set datestyle = iso
set timezone = 'GMT'
as $$
#variable_conflict use_variable
declare
    memory jsonb;
begin
    with steps as (
        delete from trax.step s
        where s.job_id = any (job_ids)
        returning s.step_id, to_jsonb(s) as step
    ), signals as (
        delete from trax.signal s
        where s.job_id = any (job_ids)
        returning to_jsonb(s) as signal
    )
    select jsonb_build_object(
        'steps', (select coalesce(jsonb_agg(s.step order by s.step_id), '[]') from steps s),
        'signals', (select coalesce(jsonb_agg(s.signal), '[]') from signals s)
    )
    into memory;
    return memory;
end;
$$;
comment on function trax.take_memory(bigint[]) is
    'Internal. Takes the steps and signals of waiting and of dead jobs from the tables and returns them.';

create function trax.take_jobs(
    group_name text,
    max_count int,
    max_bytes int
)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set datestyle = iso
set intervalstyle = postgres
set timezone = 'GMT'
as $$
#variable_conflict use_variable
declare
    one record;
    ids bigint[];
    bytes bigint := 0;
    cargo jsonb;
begin
    -- A locked job is being claimed or cancelled, and may stay for the next batch; so may one to
    -- which a signal is being sent. A job of a manifest here goes with the manifest; a job of
    -- another group's manifest goes without it.
    for one in
        select q.job_id, octet_length(to_jsonb(q)::text) as bytes
        from trax.work_queue q
        where q.group_name = group_name
            and q.parent_job_id is null
            and q.waits_for is distinct from 'jobs'
            and not exists (select from trax.graph_job g where g.job_id = q.job_id)
            and not exists (select from trax.graph g where g.graph_id = q.job_id)
            and not exists (
                select
                from trax.manifest m
                where m.manifest_id = q.manifest_id
                    and m.group_name = group_name
            )
        order by q.job_id
        limit max_count
        for update of q skip locked
    loop
        continue when not trax.hold_signals(one.job_id);
        bytes := bytes + one.bytes;
        exit when bytes > max_bytes
            and ids is not null;
        ids := ids || one.job_id;
    end loop;
    if ids is null then
        return null;
    end if;
    -- The next cleanup checks a manifest of another group again that waits for one of them.
    update trax.manifest_state s
    set parked_since = s.parked_since - interval '1 day'
    from trax.work_queue q
    where q.job_id = any (ids)
        and q.manifest_id = s.manifest_id
        and s.parked_on in ('queued', 'outcome');
    with taken as (
        delete from trax.work_queue q
        where q.job_id = any (ids)
        returning q.job_id, to_jsonb(q) as job
    ), keys as (
        delete from trax.unique_key k
        where k.job_id = any (ids)
        returning to_jsonb(k) as key
    )
    select jsonb_build_object(
        'jobs', (select coalesce(jsonb_agg(t.job order by t.job_id), '[]') from taken t),
        'keys', (select coalesce(jsonb_agg(k.key), '[]') from keys k)
    )
    into cargo;
    return cargo || trax.take_memory(ids);
end;
$$;
comment on function trax.take_jobs(text, int, int) is
    'Internal. Takes waiting jobs of a group that are not of a manifest of it, and to which no signal is being sent, from the queue and returns them; null when there is none.';

create function trax.take_letters(
    group_name text,
    target int,
    max_count int,
    max_bytes int
)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set datestyle = iso
set intervalstyle = postgres
set timezone = 'GMT'
as $$
#variable_conflict use_variable
declare
    one record;
    ids bigint[];
    bytes bigint := 0;
    cargo jsonb;
begin
    -- The dead letter of a removed manifest keeps the manifest's id.
    for one in
        select d.id, octet_length(to_jsonb(d)::text) as bytes
        from trax.dead_letter d
        where d.group_name = group_name
            and d.resolved_at is null
            and not exists (
                select
                from trax.manifest m
                where m.manifest_id = d.manifest_id
                    and m.group_name = group_name
            )
        order by d.id
        limit max_count
        for update of d
    loop
        bytes := bytes + one.bytes;
        exit when bytes > max_bytes
            and ids is not null;
        ids := ids || one.id;
    end loop;
    if ids is null then
        return null;
    end if;
    with taken as (
        update trax.dead_letter d
        set status = 'acknowledged', resolved_at = clock_timestamp(), resolution_note = format('moved to shard %s', target)
        where d.id = any (ids)
        returning d.id, to_jsonb(d) as letter
    )
    select jsonb_build_object('dead_letters', jsonb_agg(t.letter order by t.id))
    into cargo
    from taken t;
    return cargo || trax.take_memory(array(
        select (l.letter ->> 'job_id')::bigint
        from jsonb_array_elements(cargo -> 'dead_letters') l (letter)
    ));
end;
$$;
comment on function trax.take_letters(text, int, int, int) is
    'Internal. Takes unresolved dead letters of a group that are not of a manifest of it and returns them; null when there is none. They stay here as acknowledged.';

create function trax.tied_manifests(
    group_name text,
    max_count int,
    max_bytes int
)
returns bigint[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    one bigint;
    tied bigint[];
    ids bigint[];
    bytes bigint := 0;
begin
    for one in
        select m.manifest_id
        from trax.manifest m
        where m.group_name = group_name
        order by m.manifest_id
    loop
        continue when one = any (ids);
        with recursive reached (manifest_id) as (
            select one
            union
            select case when d.child_id = r.manifest_id then d.parent_id else d.child_id end
            from reached r
            join trax.manifest_dependency d on r.manifest_id in (d.child_id, d.parent_id)
        )
        select array_agg(r.manifest_id)
        into tied
        from reached r;
        bytes := bytes + (
            select sum(octet_length(to_jsonb(m)::text))
            from trax.manifest m
            where m.manifest_id = any (tied)
        ) + (
            select coalesce(sum(octet_length(to_jsonb(q)::text)), 0)
            from trax.work_queue q
            where q.manifest_id = any (tied)
                and q.scheduled_for is not null
        ) + (
            select coalesce(sum(octet_length(to_jsonb(d)::text)), 0)
            from trax.dead_letter d
            where d.manifest_id = any (tied)
                and d.resolved_at is null
        );
        exit when bytes > max_bytes
            and ids is not null;
        ids := ids || tied;
        exit when cardinality(ids) >= max_count;
    end loop;
    return ids;
end;
$$;
comment on function trax.tied_manifests(text, int, int) is
    'Internal. Returns the first manifests of a group, those that depend on each other together, up to a number and size, but at least one.';

create function trax.take_manifests(
    group_name text,
    target int,
    max_count int,
    max_bytes int
)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set datestyle = iso
set intervalstyle = postgres
set timezone = 'GMT'
as $$
#variable_conflict use_variable
declare
    ids bigint[];
    cargo jsonb;
begin
    -- Waits for transactions that change one of them; later ones find it gone.
    select array_agg(m.manifest_id)
    into ids
    from (
        select m.manifest_id
        from trax.manifest m
        where m.group_name = group_name
        order by m.manifest_id
        for update
    ) m;
    perform
    from trax.manifest_state s
    where s.manifest_id = any (ids)
    order by s.manifest_id
    for update;
    -- The group is disabled: running jobs were claimed before, and their outcome is not recorded
    -- yet.
    if ids is null or exists (
        select
        from trax.lease l
        where l.manifest_id = any (ids)
    ) then
        return null;
    end if;
    perform trax.refuse_ties(group_name);
    ids := trax.tied_manifests(group_name, max_count, max_bytes);
    perform
    from trax.work_queue q
    where q.manifest_id = any (ids)
        and (
            q.scheduled_for is not null
            or q.group_name <> group_name
        )
    order by q.job_id
    for update;
    if exists (
        select
        from trax.work_queue q
        where q.manifest_id = any (ids)
            and q.scheduled_for is not null
            and q.group_name = group_name
            and not trax.hold_signals(q.job_id)
    ) then
        return null;
    end if;
    -- Jobs queued when the manifest was in another group stay there, as jobs of no manifest.
    update trax.work_queue q
    set
        manifest_id = null, manifest = null, scheduled = false,
        waits_for = case when q.waits_for = 'manifest' then null else q.waits_for end
    where q.manifest_id = any (ids)
        and q.group_name <> group_name;
    -- Without the job of an occurrence the cycle there would queue it again. Jobs triggered by
    -- hand, which may be many, follow later and find their manifest by its name.
    with manifests as (
        delete from trax.manifest m
        where m.manifest_id = any (ids)
        returning m.manifest_id, to_jsonb(m) as manifest
    ), states as (
        delete from trax.manifest_state s
        where s.manifest_id = any (ids)
        returning to_jsonb(s) as state
    ), edges as (
        delete from trax.manifest_dependency d
        where d.child_id = any (ids)
            or d.parent_id = any (ids)
        returning to_jsonb(d) as edge
    ), jobs as (
        delete from trax.work_queue q
        where q.manifest_id = any (ids)
            and q.scheduled_for is not null
            and q.group_name = group_name
        returning q.job_id, to_jsonb(q) as job
    ), letters as (
        update trax.dead_letter d
        set status = 'acknowledged', resolved_at = clock_timestamp(), resolution_note = format('moved to shard %s', target)
        where d.manifest_id = any (ids)
            and d.resolved_at is null
            and d.group_name = group_name
        returning d.id, to_jsonb(d) as letter
    ), keys as (
        delete from trax.unique_key k
        where k.job_id in (select j.job_id from jobs j)
        returning to_jsonb(k) as key
    )
    select jsonb_build_object(
        'manifests', (select coalesce(jsonb_agg(m.manifest order by m.manifest_id), '[]') from manifests m),
        'states', (select coalesce(jsonb_agg(s.state), '[]') from states s),
        'dependencies', (select coalesce(jsonb_agg(e.edge), '[]') from edges e),
        'jobs', (select coalesce(jsonb_agg(j.job order by j.job_id), '[]') from jobs j),
        'dead_letters', (select coalesce(jsonb_agg(l.letter order by l.id), '[]') from letters l),
        'keys', (select coalesce(jsonb_agg(k.key), '[]') from keys k)
    )
    into cargo;
    return cargo || trax.take_memory(array(
        select (j.job ->> 'job_id')::bigint
        from jsonb_array_elements((cargo -> 'jobs') || (cargo -> 'dead_letters')) j (job)
    ));
end;
$$;
comment on function trax.take_manifests(text, int, int, int) is
    'Internal. Takes manifests of a group with their states, dependencies, the waiting jobs of their occurrences and unresolved dead letters from the tables and returns them; null when there is none, or a job of one of the group runs, or a signal is being sent to one of theirs.';

create function trax.take_keys(
    group_name text
)
returns jsonb
language sql volatile
set search_path = pg_catalog, pg_temp
set datestyle = iso
set timezone = 'GMT'
as $$
    with taken as (
        delete from trax.unique_key k
        where k.ended
            and exists (
                select
                from trax.run r
                where r.job_id = k.job_id
                    and r.group_name = $1
            )
        returning to_jsonb(k) as key
    )
    select jsonb_build_object('keys', jsonb_agg(t.key))
    from taken t
    having count(*) > 0
$$;
comment on function trax.take_keys(text) is
    'Internal. Takes the unique keys that ended jobs of a group still keep alive, and returns them; null when there is none.';
