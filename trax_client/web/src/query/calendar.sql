-- The times at which manifests fire within seven days, those that fire next first. $1 maximum
-- number of manifests, $2 maximum number of times of each.
select m.name, p.run_at
from (
    select m.name, s.next_run_at
    from trax.manifest_state s
    join trax.manifest m on m.manifest_id = s.manifest_id
    where s.next_run_at < pg_catalog.now() + interval '7 days'
        and m.enabled
    order by s.next_run_at, m.name
    limit $1
) m
cross join lateral (
    select t.run_at
    from trax.preview(name => m.name, count => $2) t
    where t.run_at < pg_catalog.now() + interval '7 days'
) p
order by m.next_run_at, m.name, p.run_at
