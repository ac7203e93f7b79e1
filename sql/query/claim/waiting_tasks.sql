-- Returns the tasks and groups with jobs that workers can claim now. Null groups are all.
select l.task, l.group_name
from trax.lane l
where l.task <> 'sql'
    and (
        $groups is null
        or l.group_name = any ($groups)
    )
order by l.task, l.group_name
