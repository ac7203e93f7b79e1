-- Current and recent workers: the registry, and lease holders that are not in it.
select
    s.name,
    s.state,
    s.started_at,
    s.last_seen_at,
    s.info,
    s.host,
    s.version,
    s.running,
    s.oldest_started_at,
    s.running_tasks
from trax.worker_state s
order by s.state = 'gone', s.name
