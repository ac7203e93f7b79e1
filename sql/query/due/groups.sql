-- Returns the groups with due manifests: their priority, the number of due manifests, up to
-- $at_most, and when the first became due.
with recursive groups as (
    (
        select s.group_name
        from trax.manifest_state s
        where s.next_run_at is not null
        order by s.group_name
        limit 1
    )
    union all
    select (
        select s.group_name
        from trax.manifest_state s
        where s.next_run_at is not null
            and s.group_name > g.group_name
        order by s.group_name
        limit 1
    )
    from groups g
    where g.group_name is not null
)
select g.group_name as name, coalesce(c.priority, 0::smallint) as priority, n.due, n.since
from groups g
left join trax.manifest_group c on c.name = g.group_name
cross join lateral (
    select count(*), min(d.next_run_at)
    from (
        select s.next_run_at
        from trax.manifest_state s
        where s.group_name = g.group_name
            and s.next_run_at <= $now
        order by s.next_run_at
        limit $at_most
    ) d
) as n (due, since)
where g.group_name is not null
    and n.due > 0
