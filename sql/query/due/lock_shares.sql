-- Locks due manifests, the longest due of each group first, up to the share beside the group.
select s.manifest_id
from unnest($groups, $shares) as a (group_name, share)
cross join lateral (
    select t.manifest_id
    from trax.manifest_state t
    where t.group_name = a.group_name
        and t.next_run_at <= $now
    order by t.next_run_at
    limit a.share
    for update skip locked
) s
