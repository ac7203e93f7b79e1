-- Stores the progress of an attempt, if its lease is still held, without waiting for the lease's
-- row or locking it.
insert into trax.progress as p (job_id, token, reported_at, progress)
select l.job_id, l.token, $now, $progress
from trax.lease l
where l.job_id = $job_id
    and l.token = $token
on conflict (job_id) do update
set token = excluded.token,
    reported_at = excluded.reported_at,
    progress = excluded.progress
