-- Unresolved dead letters, the oldest first; null filters nothing. $1 task, $2 manifest, $3 group,
-- $4 since, $5 at most
select d.id, d.manifest_id, d.unique_key
from trax.dead_letter d
where d.status = 'awaiting_intervention'
    and ($1 is null or d.task = $1)
    and ($2 is null or d.manifest = $2)
    and ($3 is null or d.group_name = $3)
    and ($4 is null or d.created_at >= $4)
order by d.created_at, d.id
limit $5
