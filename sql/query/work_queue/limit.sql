-- Sets until when a job may wait to be claimed; $micros is its limit, null for none. A suspended
-- job was claimed.
update trax.work_queue q
set expires_at = greatest(q.run_at, $now) + $micros * interval '1 microsecond'
where q.job_id = $job_id
    and (
        q.steps is null
        or q.waits_for is null
        or q.waits_for not in ('signal', 'jobs')
    )
