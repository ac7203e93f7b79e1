-- Locks due manifests, the longest due first. $1 now, $2 at most
select s.manifest_id
from trax.manifest_state s
where s.next_run_at <= $1
order by s.next_run_at
limit $2
for update skip locked
