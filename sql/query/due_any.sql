-- Whether any manifest is due. $1 now
select
from trax.manifest_state s
where s.next_run_at <= $1
order by s.next_run_at
limit 1
