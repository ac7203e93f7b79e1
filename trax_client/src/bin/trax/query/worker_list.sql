-- Who executes jobs, or did lately: the registry, and who holds a lease without standing in it.
select
    n.name,
    w.started_at,
    w.last_seen_at,
    w.info,
    (
        select count(*)
        from trax.lease l
        where l.worker = n.name
    ) as running,
    (
        select min(l.started_at)
        from trax.lease l
        where l.worker = n.name
    ) as oldest_started_at,
    array(
        select distinct l.task
        from trax.lease l
        where l.worker = n.name
        order by l.task
    ) as tasks
from (
    select w.name
    from trax.worker w
    union
    select l.worker
    from trax.lease l
) n
left join trax.worker w on w.name = n.name
order by n.name
