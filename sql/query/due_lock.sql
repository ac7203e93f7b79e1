-- Locks due manifests, the longest due first. $1 now, $2 at most
select t.manifest_id
from trax.manifest_state t
where t.next_run_at <= $1
order by t.next_run_at
limit $2
for update skip locked
