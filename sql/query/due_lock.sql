-- Locks all due manifests. $1 now
select s.manifest_id
from trax.manifest_state s
where s.next_run_at <= $1
order by s.next_run_at
for update skip locked
