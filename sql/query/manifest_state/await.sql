-- After its dead letter was requeued, keeps a manifest parked until the new job has its outcome; a
-- manifest that dead letters do not stop continues. The reason is not in the where clause: the
-- statement must wait for a cycle that is about to park the manifest.
update trax.manifest_state s
set
    parked_on = case
        -- Parked on the dead letter, or due since the failure and not yet decided by a cycle.
        when coalesce(s.parked_on, 'dead_letter') <> 'dead_letter' then s.parked_on
        when m.every is not null and m.max_concurrency = 1 then 'outcome'
        when s.parked_on is null then null
        when m.run_at is not null then 'outcome'
        else 'queued'
    end,
    parked_since = case
        when coalesce(s.parked_on, 'dead_letter') <> 'dead_letter' then s.parked_since
        when s.parked_on is null and not (m.every is not null and m.max_concurrency = 1) then null
        else $now
    end,
    next_run_at = case when m.every is not null and m.max_concurrency = 1 then null else s.next_run_at end,
    next_scheduled_for = case when m.every is not null and m.max_concurrency = 1 then null else s.next_scheduled_for end
from trax.manifest m
where s.manifest_id = $manifest_id
    and m.manifest_id = s.manifest_id
    and m.on_dead_letter = 'stop'
