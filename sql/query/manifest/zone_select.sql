-- Returns the cron manifests in zones with a next run that is in the future, or due and not queued
-- yet, and the columns that determine it.
select
    s.manifest_id, s.next_scheduled_for, m.cron, m.timezone, m.starts_at, m.ends_at, m.exclusions, s.next_run_at
from trax.manifest m
join trax.manifest_state s on s.manifest_id = m.manifest_id
where m.cron is not null
    and m.timezone <> 'UTC'
    and s.next_scheduled_for is not null
    -- A run that a user has made due before its occurrence is due.
    and (
        s.next_run_at > $now
        or s.next_scheduled_for <= $now
    )
