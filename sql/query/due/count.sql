-- How many manifests are due, up to $2. $1 now
select count(*)
from (
    select
    from trax.manifest_state s
    where s.next_run_at <= $1
    order by s.next_run_at
    limit $2
) d
