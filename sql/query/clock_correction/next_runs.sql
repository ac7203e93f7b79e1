-- Returns the manifests that follow $after and are due after $now, $at_most of them, with the
-- columns that determine their next run.
select
    s.manifest_id, s.next_run_at, coalesce(s.next_scheduled_for, s.next_run_at) as occurrence,
    greatest(s.last_scheduled_for, s.last_skipped_for) as last_occurrence,
    coalesce(m.updated_at > s.last_queued_at, true) as is_changed_since, s.last_success_at,
    m.cron, m.every, m.timezone, m.starts_at, m.ends_at, m.variance, m.exclusions,
    s.decided_at, s.evaluation_error is not null or m.depends_mode is not null as is_due_at_once
from (
    select
        t.manifest_id, t.next_run_at, t.next_scheduled_for, t.last_scheduled_for, t.last_skipped_for, t.last_queued_at,
        t.last_success_at, t.decided_at, t.evaluation_error
    from trax.manifest_state t
    where t.manifest_id > $after
        and t.next_run_at > $now
    order by t.manifest_id
    limit $at_most
) s
cross join lateral (
    select f.cron, f.every, f.timezone, f.starts_at, f.ends_at, f.variance, f.exclusions, f.depends_mode,
        f.updated_at
    from trax.manifest f
    where f.manifest_id = s.manifest_id
    offset 0
) m
order by s.manifest_id
