-- Returns how many manifests are due, up to $at_most.
select count(*)
from (
    select
    from trax.manifest_state s
    where s.next_run_at <= $now
    order by s.next_run_at
    limit $at_most
) d
