-- Returns how many unresolved dead letters cannot be requeued: because the role of their statement
-- is not known, their steps are being undone, their rate does not exist or has too low a burst, or
-- another job has their unique key; a null does not filter.
select
    count(*) filter (where l.reason = 'key') as with_key,
    count(*) filter (where l.reason = 'role') as without_role,
    count(*) filter (where l.reason = 'undone') as undone,
    count(*) filter (where l.reason = 'rate') as without_rate
from (
    select
        case
            when d.task = 'sql' and d.run_as is null then 'role'
            when d.undone then 'undone'
            when d.rate is not null and not exists (
                select
                from trax.rate r
                where r.name = d.rate
                    and coalesce(r.burst, r.allowed) >= d.cost
            ) then 'rate'
            when exists (
                select
                from trax.unique_key k
                where k.key = d.unique_key
                    and (not k.ended or k.job_id <> d.job_id and k.alive_until > $now)
            ) then 'key'
        end as reason
    from trax.dead_letter d
    where d.status = 'awaiting_intervention'
        and ($task is null or d.task = $task)
        and ($manifest is null or d.manifest = $manifest)
        and ($group is null or d.group_name = $group)
        and ($since is null or d.created_at >= $since)
) l
