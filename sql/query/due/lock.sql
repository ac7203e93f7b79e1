-- Locks due manifests, the longest due first.
select s.manifest_id
from trax.manifest_state s
where s.next_run_at <= $now
order by s.next_run_at
limit $at_most
for update skip locked
