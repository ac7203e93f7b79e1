-- The next manifests to run. $1 limit.
select m.name, m.task, m.group_name, s.next_run_at
from trax.manifest_state s
join trax.manifest m on m.manifest_id = s.manifest_id
where s.next_run_at is not null
order by s.next_run_at
limit $1
