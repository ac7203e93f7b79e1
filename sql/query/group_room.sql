-- Whether a group is switched on, and how many more of its jobs may run; null is no limit. $1 group
select
    g.enabled,
    g.max_active_jobs - (
        select count(*)
        from (
            select
            from trax.lease l
            where l.group_name = g.name
                and l.limited
            limit g.max_active_jobs
        ) l
    )
from trax.manifest_group g
where g.name = $1
