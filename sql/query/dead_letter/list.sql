-- Returns unresolved dead letters that can be requeued, the oldest first; a null does not filter.
select d.id, d.manifest_id, d.unique_key
from trax.dead_letter d
where d.status = 'awaiting_intervention'
    and ($task is null or d.task = $task)
    and ($manifest is null or d.manifest = $manifest)
    and ($group is null or d.group_name = $group)
    and ($since is null or d.created_at >= $since)
    and (d.task <> 'sql' or d.run_as is not null)
    and not d.undone
    and (
        d.rate is null
        or exists (
            select
            from trax.rate r
            where r.name = d.rate
                and coalesce(r.burst, r.allowed) >= d.cost
        )
    )
    and not exists (
        select
        from trax.unique_key k
        where k.key = d.unique_key
            and (not k.ended or k.job_id <> d.job_id and k.alive_until > $now)
    )
order by d.created_at, d.id
limit $at_most
