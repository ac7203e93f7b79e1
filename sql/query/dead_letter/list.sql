-- Returns unresolved dead letters, the oldest first; null filters nothing.
select d.id, d.manifest_id, d.unique_key
from trax.dead_letter d
where d.status = 'awaiting_intervention'
    and ($task is null or d.task = $task)
    and ($manifest is null or d.manifest = $manifest)
    and ($group is null or d.group_name = $group)
    and ($since is null or d.created_at >= $since)
order by d.created_at, d.id
limit $at_most
