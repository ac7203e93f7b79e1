-- Moves next runs to other occurrences; what the variance added stays. Side by side: $1 manifests, $2 occurrences
update trax.manifest_state s
set
    next_run_at = c.occurrence + (s.next_run_at - s.next_scheduled_for),
    next_scheduled_for = c.occurrence
from unnest($1, $2) as c (manifest_id, occurrence)
where s.manifest_id = c.manifest_id
