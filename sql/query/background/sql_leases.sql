-- Returns the attempts of executors, and whether their groups are disabled.
select
    l.job_id, l.token, l.worker, l.cancel_requested,
    exists (
        select
        from trax.manifest_group g
        where g.name = l.group_name
            and not g.enabled
    ) as is_paused
from trax.lease l
where l.run_as is not null
