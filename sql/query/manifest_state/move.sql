-- Moves next runs that no other transaction has locked or moved; all but $now are parallel arrays.
-- $was is the next run before the move.
update trax.manifest_state s
set next_run_at = o.next_run_at, next_scheduled_for = o.occurrence, decided_at = $now
from (
    select t.manifest_id, c.next_run_at, c.occurrence
    from unnest($manifest_ids, $was, $next_run_at, $occurrences) as c (manifest_id, was, next_run_at, occurrence)
    join trax.manifest_state t on t.manifest_id = c.manifest_id
    where t.next_run_at = c.was
    order by t.manifest_id
    for update of t skip locked
) o
where s.manifest_id = o.manifest_id
