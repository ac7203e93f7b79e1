-- Who executes jobs, or did lately: the registry, and who holds a lease without standing in it.
select
    coalesce(w.name, l.worker) as name,
    w.started_at,
    w.last_seen_at,
    w.info,
    coalesce(l.running, 0) as running,
    l.oldest_started_at,
    coalesce(l.tasks, '{}') as tasks
from trax.worker w
full join (
    select
        l.worker,
        count(*) as running,
        min(l.started_at) as oldest_started_at,
        array_agg(distinct l.task order by l.task) as tasks
    from trax.lease l
    group by l.worker
) l on l.worker = w.name
order by name
