-- Manifests, their groups and the rates of these as a document for trax manifest apply and
-- trax.apply. The server writes it, so every digit of an input is kept. $1 manifest, null for all;
-- $2 limit.
with chosen as materialized (
    select m.*
    from trax.manifest m
    where $1::text is null or m.name = $1
    order by m.name
    limit $2
),
manifest as (
    select
        c.name,
        to_jsonb(c) - case when c.run_as is null then '{}' else array['task', 'input'] end
            || case when c.run_as is null then '{}' else jsonb_build_object('sql', c.input -> 'command') end
            || jsonb_build_object(
                'depends_on',
                array(
                    select p.name
                    from trax.manifest_dependency d
                    join trax.manifest p on p.manifest_id = d.parent_id
                    where d.child_id = c.manifest_id
                    order by p.name
                )
            ) as stored
    from chosen c
),
member as (
    select 'manifests' as list, m.name, e.key, e.value
    from manifest m
    cross join lateral jsonb_each(m.stored) e
    where e.key in (
            'name', 'task', 'sql', 'run_as', 'cron', 'timezone', 'every', 'run_at', 'depends_on', 'depends_mode',
            'dormant', 'group_name', 'priority', 'max_retries', 'retry_delay', 'timeout', 'on_dead_letter', 'misfire',
            'misfire_threshold', 'misfire_limit', 'overlap', 'max_concurrency', 'variance', 'starts_at', 'ends_at',
            'enabled', 'input', 'exclusions'
        )
    union all
    select 'groups', g.name, e.key, e.value
    from trax.manifest_group g
    cross join lateral jsonb_each(to_jsonb(g)) e
    where e.key in ('name', 'max_active_jobs', 'priority', 'max_per_key', 'rate', 'max_waiting', 'overflow', 'enabled')
        and ($1 is null or g.name in (select c.group_name from chosen c))
    union all
    select 'rates', r.name, e.key, e.value
    from trax.rate r
    cross join lateral jsonb_each(to_jsonb(r)) e
    where e.key in ('name', 'allowed', 'period', 'burst')
        and (
            $1 is null
            or exists (
                select
                from trax.manifest_group g
                where g.rate = r.name
                    and g.name in (select c.group_name from chosen c)
            )
        )
    union all
    select 'tasks', t.name, e.key, e.value
    from trax.task t
    cross join lateral jsonb_each(to_jsonb(t)) e
    where e.key in ('name', 'max_retries', 'retry_delay', 'backoff', 'retry_delay_max', 'timeout', 'on_final_failure')
        and $1 is null
),
entry as (
    select m.list, m.name, jsonb_object_agg(m.key, m.value) as entry
    from member m
    where m.value <> 'null'
    group by m.list, m.name
)
select
    jsonb_pretty(
        jsonb_build_object(
            'groups',
            coalesce((select jsonb_agg(e.entry order by e.name) from entry e where e.list = 'groups'), '[]'),
            'manifests',
            coalesce((select jsonb_agg(e.entry order by e.name) from entry e where e.list = 'manifests'), '[]'),
            'rates',
            coalesce((select jsonb_agg(e.entry order by e.name) from entry e where e.list = 'rates'), '[]'),
            'tasks',
            coalesce((select jsonb_agg(e.entry order by e.name) from entry e where e.list = 'tasks'), '[]')
        )
    ) as document,
    (select count(*) from chosen) as count,
    (select min(c.name) from chosen c where c.run_as is null and c.input = 'null') as with_null_input
