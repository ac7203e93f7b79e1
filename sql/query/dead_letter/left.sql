-- Returns how many unresolved dead letters cannot be requeued: because another job has their unique
-- key, the role of their statement is not known, or their steps are being undone; a null does not
-- filter.
select
    count(*) filter (where (d.task <> 'sql' or d.run_as is not null) and not d.undone) as with_key,
    count(*) filter (where d.task = 'sql' and d.run_as is null) as without_role,
    count(*) filter (where d.undone) as undone
from trax.dead_letter d
where d.status = 'awaiting_intervention'
    and ($task is null or d.task = $task)
    and ($manifest is null or d.manifest = $manifest)
    and ($group is null or d.group_name = $group)
    and ($since is null or d.created_at >= $since)
    and (
        d.task = 'sql'
            and d.run_as is null
        or d.undone
        or exists (
            select
            from trax.unique_key k
            where k.key = d.unique_key
                and (not k.ended or k.job_id <> d.job_id and k.alive_until > $now)
        )
    )
