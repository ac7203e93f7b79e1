-- Keeps a manifest parked whose dead letter was requeued until that job has its outcome. $1 manifest, $2 now
-- The reason is not a condition: a cycle that is about to park it must be waited for.
update trax.manifest_state s
set
    parked_on = case
        when s.parked_on <> 'dead_letter' then s.parked_on
        when s.parked_on = 'dead_letter' and (m.every is not null or m.run_at is not null) then 'outcome'
        when s.parked_on = 'dead_letter' then 'queued'
    end,
    parked_since = case when s.parked_on = 'dead_letter' then $2 else s.parked_since end
from trax.manifest m
where s.manifest_id = $1
    and m.manifest_id = s.manifest_id
