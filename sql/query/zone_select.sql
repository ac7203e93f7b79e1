-- The cron manifests in zones that are due after $1, with what their next run follows from.
select
    s.manifest_id, s.next_scheduled_for, m.cron, m.timezone, m.starts_at, m.ends_at, m.exclusions, s.next_run_at
from trax.manifest m
join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.cron is not null
    and m.timezone <> 'UTC'
    -- One whose occurrence has come and whose delay has not keeps it.
    and s.next_run_at > $1
    and s.next_scheduled_for > $1
