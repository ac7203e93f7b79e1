-- Current and recent workers, with the tasks that they take and those that they run. $1 limit, $2
-- alive or gone; null for all.
select
    s.name, s.state, s.started_at, s.last_seen_at, s.host, s.version, s.running, s.oldest_started_at,
    s.running_tasks[:20] as running_tasks,
    case pg_catalog.jsonb_typeof(s.info -> 'tasks')
        when 'array' then array(
            select pg_catalog.left(t.task, 300)
            from pg_catalog.jsonb_array_elements_text(s.info -> 'tasks') t (task)
            limit 21
        )
    end as tasks
from trax.worker_state s
where $2::text is null
    or ($2 = 'gone') = (s.state = 'gone')
order by s.state = 'gone', s.name
limit $1
