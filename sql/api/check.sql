-- Invariants.

create function trax.check(
    history interval default '1 hour'
)
returns table (
    rule text,
    detail text
)
language sql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp
-- Plans that do not depend on statistics: live rows are looked up, and history is read once.
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set work_mem = '64MB'
as $$
with recursive since as materialized (
    -- All history is younger than a thousand years.
    select clock_timestamp() - greatest(least($1, '1000 years'), '0') as moment
), several as materialized (
    -- Jobs that may have more than one run: those with two of this time, and those that existed
    -- before it. The sum keeps the planner from walking an index in this order, with a visit to a
    -- page for each row.
    select r.job_id + 0 as job_id
    from trax.run r
    where r.finished_at >= (select s.moment from since s)
    group by 1
    having count(*) > 1
        or min(r.queued_at) < (select s.moment from since s)
), run_of_several as materialized (
    select r.job_id, r.attempt, r.final, r.started_at is not null as started
    from several s
    join trax.run r on r.job_id = s.job_id
), odd as materialized (
    -- The attempts of this time that are to be retried, or that ended before they began.
    select r.job_id, r.attempt, r.final, r.finished_at < r.started_at as reversed
    from trax.run r
    where r.finished_at >= (select s.moment from since s)
        and (not r.final or r.finished_at < r.started_at)
), id_range as materialized (
    -- History is read once, by ranges of ids: a million jobs that were queued one after the other
    -- are 16,000 ranges. For an isolated job, at most 64 ids are read.
    select min(l.job_id) as first, max(l.job_id) as last
    from (
        select q.job_id
        from trax.work_queue q
        union all
        select l.job_id
        from trax.lease l
    ) l
    group by l.job_id / 64
), ended as materialized (
    select r.job_id
    from id_range i
    join trax.run r on r.job_id between i.first and i.last
    where r.final
    group by r.job_id
), wrong_lane as (
    -- The hash of a lane is computed once, if all its jobs have the same names.
    select q.lane_id
    from trax.work_queue q
    group by q.lane_id
    having min(q.group_name) <> max(q.group_name)
        or min(q.task) <> max(q.task)
        or min(q.run_as) <> max(q.run_as)
        or count(q.run_as) not in (0, count(*))
        or min(q.version) <> max(q.version)
        or count(q.version) not in (0, count(*))
        or min(q.rate) <> max(q.rate)
        or count(q.rate) not in (0, count(*))
        or min(q.rate_key) <> max(q.rate_key)
        or count(q.rate_key) not in (0, count(*))
        or q.lane_id <> trax.lane_of(
            min(q.group_name), min(q.task), min(q.run_as), min(q.version), min(q.rate), min(q.rate_key)
        )
), circle as (
    -- Walks from the first job of a circle, if there is one, over later ones.
    select q.job_id as first, q.job_id
    from trax.work_queue q
    where q.waits_for = 'jobs'
        and q.wait_until is null
        and exists (
            select
            from trax.need n
            where n.job_id = q.job_id
                and n.needed_job_id > q.job_id
        )
        and exists (
            select
            from trax.need n
            where n.needed_job_id = q.job_id
                and n.job_id > q.job_id
        )
    union
    select c.first, q.job_id
    from circle c
    join trax.need n on n.job_id = c.job_id
    join trax.work_queue q on q.job_id = n.needed_job_id
    where n.needed_job_id > c.first
        and not n.one_is_enough
        and n.condition <> 'failed'
        and q.waits_for = 'jobs'
        and q.wait_until is null
)
select 'a job is in one place', format('job %s waits and is executed', q.job_id)
from trax.work_queue q
join trax.lease l on l.job_id = q.job_id
union all
select 'a job is in one place', format('job %s waits and has ended', q.job_id)
from ended e
join trax.work_queue q on q.job_id = e.job_id
union all
select 'a job is in one place', format('job %s is executed and has ended', l.job_id)
from ended e
join trax.lease l on l.job_id = e.job_id
union all
select 'a job ends once', format('job %s has %s final runs', r.job_id, count(*))
from run_of_several r
where r.final
group by r.job_id
having count(*) > 1
union all
select 'an attempt ends once', format('attempt %s of job %s has %s runs', r.attempt, r.job_id, count(*))
from run_of_several r
where r.started
group by r.job_id, r.attempt
having count(*) > 1
union all
-- Not in a cluster: jobs move to another shard, and leave their history.
select 'a job that is to be retried waits', format('job %s, after attempt %s', o.job_id, max(o.attempt))
from odd o
where not o.final
    and not exists (select from trax.work_queue q where q.job_id = o.job_id)
    and not exists (select from trax.lease l where l.job_id = o.job_id)
    and not exists (select from trax.run r where r.job_id = o.job_id and r.final)
    and not exists (select from pg_extension e where e.extname = 'trax_shard')
group by o.job_id
union all
select 'an attempt ends after it began', format('attempt %s of job %s', o.attempt, o.job_id)
from odd o
where o.reversed
union all
select 'a waiting job is in its lane', format('job %s is in lane %s', q.job_id, q.lane_id)
from wrong_lane w
join trax.work_queue q on q.lane_id = w.lane_id
where q.lane_id <> trax.lane_of(q.group_name, q.task, q.run_as, q.version, q.rate, q.rate_key)
union all
select 'a job is not claimable before its time', format('job %s is due at %s', q.job_id, q.run_at)
from trax.work_queue q
where q.waits_for is null
    and q.run_at > clock_timestamp() + interval '1 min'
union all
select 'the reaper looks in time', format('lease of job %s: looks at %s, ends at %s', l.job_id, l.reap_at, l.lease_expires_at)
from trax.lease l
-- A lease that cannot end yet is put off by at most ten seconds.
where l.reap_at > greatest(l.lease_expires_at, clock_timestamp() + interval '11 s')
union all
select 'a unique key has a live job', format('key "%s" of job %s', k.key, k.job_id)
from trax.unique_key k
where not k.ended
    and not exists (
        select
        from trax.work_queue q
        where q.job_id = k.job_id
            and q.unique_key = k.key
    )
    and not exists (
        select
        from trax.lease l
        where l.job_id = k.job_id
            and l.unique_key = k.key
    )
union all
select 'a live job keeps its unique key', format('key "%s" of job %s', j.unique_key, j.job_id)
from (
    select q.job_id, q.unique_key
    from trax.work_queue q
    where q.unique_key is not null
    union all
    select l.job_id, l.unique_key
    from trax.lease l
    where l.unique_key is not null
) j
where not exists (
    select
    from trax.unique_key k
    where k.key = j.unique_key
        and k.job_id = j.job_id
        and not k.ended
)
union all
select 'a live job can be read', format('job %s: %s', u.job_id, u.error)
from trax.unreadable_job u
where exists (select from trax.work_queue q where q.job_id = u.job_id)
    or exists (select from trax.lease l where l.job_id = u.job_id)
union all
select 'a step belongs to a living job', format('step "%s" of job %s', s.step, s.job_id)
from trax.step s
where not exists (select from trax.work_queue q where q.job_id = s.job_id)
    and not exists (select from trax.lease l where l.job_id = s.job_id)
union all
select 'a waiting job knows its number of steps', format('job %s: %s, and it has %s', q.job_id, coalesce(q.steps, 0), s.steps)
from (
    select o.job_id, count(*) as steps
    from trax.step o
    group by o.job_id
) s
join trax.work_queue q on q.job_id = s.job_id
where q.steps is distinct from s.steps
union all
select 'a waiting job knows its number of steps', format('job %s: %s, and it has none', q.job_id, q.steps)
from trax.work_queue q
where q.steps is not null
    and not exists (select from trax.step s where s.job_id = q.job_id)
union all
select 'a job that waits for a signal can receive it', format('job %s', q.job_id)
from trax.work_queue q
where q.waits_for = 'signal'
    and not exists (
        select
        from trax.step s
        join trax.signal n on n.job_id = s.job_id and n.name = s.wait ->> 'name'
        where s.job_id = q.job_id
            and s.kind = 'signal'
            and s.recorded_at is null
            and n.sent_at is null
    )
union all
-- The end of a job, or the resolution of its dead letter, deletes its signals. The repair deletes
-- those that were being sent meanwhile: a thousand a minute, of which it may miss a pass.
select 'a signal has a job that can receive it', format('signal "%s" of job %s, since %s', o.name, o.job_id, o.ended_at)
from (
    select
        n.name, n.job_id,
        greatest(
            n.sent_at, n.taken_at,
            (select max(d.resolved_at) from trax.dead_letter d where d.job_id = n.job_id),
            (select max(r.finished_at) from trax.run r where r.job_id = n.job_id)
        ) as ended_at
    from trax.signal n
    where not exists (select from trax.work_queue q where q.job_id = n.job_id)
        and not exists (select from trax.lease l where l.job_id = n.job_id)
        and not exists (
            select
            from trax.dead_letter d
            where d.job_id = n.job_id
                and d.status = 'awaiting_intervention'
        )
    offset 0
) o
-- A cycle has run at shown_at.
where o.ended_at < (select c.shown_at from trax.believed_clock c) - interval '10 min'
        - (select count(*) from trax.signal) / 500 * interval '1 min'
union all
-- The end of the needed job deletes the need of a job that has ended. A job that is added to a
-- batch leaves such a need when the batch is cancelled before the transaction commits.
select 'a need has a living job', format('job %s needs job %s', n.job_id, n.needed_job_id)
from trax.need n
where not exists (select from trax.work_queue q where q.job_id in (n.job_id, n.needed_job_id))
    and not exists (select from trax.lease l where l.job_id in (n.job_id, n.needed_job_id))
    and not exists (select from trax.need_event e where e.job_id in (n.job_id, n.needed_job_id))
union all
select 'a job that waits for others needs one', format('job %s', q.job_id)
from trax.work_queue q
where q.waits_for = 'jobs'
    and not exists (select from trax.need n where n.job_id = q.job_id)
    and not exists (select from trax.need_event e where e.job_id = q.job_id)
union all
-- A circle has a first job, which a later one needs, and which needs a later one: few jobs of
-- graphs, batches and families are both. Other needs may end a wait for one of several.
select 'jobs do not wait for each other for ever', format('job %s waits for job %s, which waits for it', w.job_id, w.first)
from (
    select c.first, c.job_id
    from circle c
    limit 100000
) w
where exists (
        select
        from trax.need n
        where n.needed_job_id = w.first
            and n.job_id = w.job_id
            and n.job_id <> w.first
            and not n.one_is_enough
            and n.condition <> 'failed'
    )
union all
-- Only an open batch needs itself.
select 'jobs do not wait for each other for ever', format('job %s waits for itself', n.job_id)
from trax.need n
join trax.work_queue q on q.job_id = n.job_id
where n.needed_job_id = n.job_id
    and q.waits_for = 'jobs'
    and not exists (select from trax.graph g where g.graph_id = n.job_id and g.is_batch)
union all
select 'a job of a graph has a graph', format('job %s: graph %s', g.job_id, g.graph_id)
from trax.graph_job g
where not exists (select from trax.graph h where h.graph_id = g.graph_id)
union all
-- A graph is deleted with its jobs. The job of a batch is not among them, and lives until the batch
-- is sealed; its end is as young. History may be dropped.
select 'a graph has a job', format('graph %s', g.graph_id)
from trax.graph g
where not exists (select from trax.graph_job m where m.graph_id = g.graph_id)
    and (
        not g.is_batch
        or g.queued_at > clock_timestamp() - least(
            interval '1 day',
            current_setting('trax.run_retention', true)::interval
        )
    )
    and not (
        g.is_batch
        and (
            exists (select from trax.work_queue q where q.job_id = g.graph_id)
            or exists (select from trax.lease l where l.job_id = g.graph_id)
            or exists (select from trax.run r where r.job_id = g.graph_id)
        )
    )
union all
-- A parent lives when its child is queued, so that its end is as young. History may be dropped.
select 'a child has a parent', format(
    'job %s: its parent %s neither lives nor has ended; update trax.%I set parent_job_id = null where job_id = %s',
    c.job_id, c.parent_job_id, c.place, c.job_id
)
from (
    select q.job_id, q.parent_job_id, q.queued_at, 'work_queue' as place
    from trax.work_queue q
    where q.parent_job_id is not null
    union all
    select l.job_id, l.parent_job_id, l.queued_at, 'lease'
    from trax.lease l
    where l.parent_job_id is not null
) c
where c.queued_at > clock_timestamp() - least(
        interval '1 day',
        current_setting('trax.run_retention', true)::interval
    )
    and not exists (select from trax.work_queue q where q.job_id = c.parent_job_id)
    and not exists (select from trax.lease l where l.job_id = c.parent_job_id)
    and not exists (select from trax.run r where r.job_id = c.parent_job_id and r.final)
union all
select 'a manifest has a state', format('manifest "%s"', m.name)
from trax.manifest m
where not exists (
    select
    from trax.manifest_state s
    where s.manifest_id = m.manifest_id
)
union all
select 'the times of a job are finite', format('job %s', q.job_id)
from trax.work_queue q
where not isfinite(q.queued_at)
    or not isfinite(q.run_at)
union all
select 'the times of a job are finite', format('job %s', l.job_id)
from trax.lease l
where not isfinite(l.lease_expires_at)
    or not isfinite(l.reap_at)
union all
select 'a dependency has both manifests', format('manifest %s depends on manifest %s', d.child_id, d.parent_id)
from trax.manifest_dependency d
where not exists (
        select
        from trax.manifest m
        where m.manifest_id = d.child_id
    )
    or not exists (
        select
        from trax.manifest m
        where m.manifest_id = d.parent_id
    )
union all
select 'a state has a manifest', format('manifest %s', s.manifest_id)
from trax.manifest_state s
where not exists (
    select
    from trax.manifest m
    where m.manifest_id = s.manifest_id
)
union all
select 'an enabled schedule is due or parked', format('manifest "%s"', m.name)
from trax.manifest m
join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.enabled
    and num_nonnulls(m.cron, m.every, m.run_at) = 1
    and coalesce(s.next_run_at, 'infinity') = 'infinity'
    and s.parked_on is null
union all
select 'a manifest that awaits an outcome has a job', format('manifest "%s"', m.name)
from trax.manifest m
join trax.manifest_state s on s.manifest_id = m.manifest_id
where s.parked_on in ('outcome', 'executing', 'queued')
    and not exists (
        select
        from trax.work_queue q
        where q.manifest_id = m.manifest_id
    )
    and not exists (
        select
        from trax.lease l
        where l.manifest_id = m.manifest_id
    )
    and not exists (
        select
        from trax.dead_letter d
        where d.manifest_id = m.manifest_id
            and d.status = 'awaiting_intervention'
    )
union all
select 'a schedule that continues waits for no dead letter', format('manifest "%s"', m.name)
from trax.manifest m
join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.on_dead_letter = 'continue'
    and s.parked_on = 'dead_letter'
union all
select 'a grant has a token of its own', format('%s', string_agg(format('slot %s of "%s"', t.slot, t.name), ', ' order by t.name, t.slot))
from trax.concurrency_token t
group by t.token
having count(*) > 1
union all
select 'a job that failed for good has a dead letter', format('job %s', r.job_id)
from trax.run r
where r.final
    and r.state = 'failed'
    and r.manifest_id is null
    and r.finished_at > clock_timestamp() - least(
        interval '1 day',
        current_setting('trax.dead_letter_retention', true)::interval
    )
    and not exists (
        select
        from trax.dead_letter d
        where d.job_id = r.job_id
    )
union all
select
    'a right is of a level',
    format(
        '%s has %s%s on %s%s',
        case g.grantee when 0 then 'PUBLIC' else format('role "%s"', pg_get_userbyid(g.grantee)) end,
        g.privilege, coalesce(' (' || g.column_name || ')', ''), g.object,
        case when g.grantable then ' and may grant it' else '' end
    )
from trax.granted_rights() g
where g.grantee = 0
    or g.grantable
    or not exists (
        select
        from unnest(array['admin', 'limited producer']) l (level)
        cross join trax.rights_of(l.level) r
        where r.object = g.object
            and r.privilege = g.privilege
    )
union all
select
    'a limited role has its scope',
    case
        when s.role is null then format('role "%s" is limited, and has no row in trax.access_scope: it may do nothing', m.role)
        else format('trax.access_scope has a row for "%s", and no role of this name is limited', s.role)
    end
from (
    select pg_get_userbyid(g.grantee)::text as role
    from trax.granted_rights() g
    where g.kind = 'routine'
        and g.oid = 'trax.limited_access'::regproc
) m
full join trax.access_scope s on s.role = m.role
where s.role is null
    or m.role is null
$$;
comment on function trax.check(interval) is
    'Returns a row for each violated invariant of trax. Reads the jobs that ended within this time; null reads all history.';
