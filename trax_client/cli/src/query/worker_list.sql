-- Who executes jobs, or did lately: the registry, and who holds a lease without standing in it.
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
