-- Keeps what an attempt says, if its lease is still held; neither waits for the lease's row nor
-- locks it. $1 job, $2 token, $3 progress, $4 now
insert into trax.progress as p (job_id, token, reported_at, progress)
select l.job_id, l.token, $4, $3
from trax.lease l
where l.job_id = $1
    and l.token = $2
on conflict (job_id) do update
set token = excluded.token,
    reported_at = excluded.reported_at,
    progress = excluded.progress
