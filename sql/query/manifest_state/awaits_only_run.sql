-- Returns a manifest that runs once and waits for the outcome of that run, if no job of it is left.
select s.manifest_id
from trax.manifest_state s
join trax.manifest m on m.manifest_id = s.manifest_id
where s.manifest_id = $manifest_id
    and s.parked_on = 'outcome'
    and m.run_at is not null
    and not exists (
        select
        from trax.work_queue q
        where q.manifest_id = s.manifest_id
    )
    and not exists (
        select
        from trax.lease l
        where l.manifest_id = s.manifest_id
    )
