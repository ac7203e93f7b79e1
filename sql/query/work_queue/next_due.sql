-- Returns the earliest time at which a cycle has work.
select least(
    (select min(q.run_at) from trax.work_queue q where q.waits_for = 'time'),
    (select min(q.wait_until) from trax.work_queue q where q.wait_until is not null),
    (select min(q.expires_at) from trax.work_queue q where q.expires_at is not null),
    (select min(s.next_run_at) from trax.manifest_state s where s.next_run_at is not null),
    (select min(l.timeout_at) from trax.lease l where l.run_as is not null and not l.timed_out)
)
