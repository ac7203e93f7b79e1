-- Open dead letters that match all filters, oldest first. $1 task, $2 group, $3 manifest, $4 since.
select d.id
from trax.dead_letter d
where d.status = 'awaiting_intervention'
    and ($1::text is null or d.task = $1)
    and ($2::text is null or d.group_name = $2)
    and ($3::text is null or d.manifest = $3)
    and ($4::timestamptz is null or d.created_at >= $4)
order by d.id
