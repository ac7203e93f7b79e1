-- Locks due manifests, the longest due of each group first. $1 now, $2 groups, $3 how many of each
select s.manifest_id
from unnest($2, $3) as a (group_name, share)
cross join lateral (
    select t.manifest_id
    from trax.manifest_state t
    where t.group_name = a.group_name
        and t.next_run_at <= $1
    order by t.next_run_at
    limit a.share
    for update skip locked
) s
