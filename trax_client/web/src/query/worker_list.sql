-- Current and recent workers. $1 limit.
select s.name, s.state, s.started_at, s.last_seen_at, s.host, s.version, s.running, s.oldest_started_at
from trax.worker_state s
order by s.state = 'gone', s.name
limit $1
