-- Adds a signal, or fills the row of a job that waits for it. Returns no row when another sender
-- has taken the place meanwhile, or a signal with this id was sent to the job.
insert into trax.signal as s (job_id, name, position, sent_at, signal_id, payload)
select $job_id, $name, coalesce(l.position + case when l.sent_at is null then 0 else 1 end, 1), $now, $signal_id, $payload
from (select) one
left join lateral (
    select n.position, n.sent_at
    from trax.signal n
    where n.job_id = $job_id
        and n.name = $name
    order by n.position desc
    limit 1
) l on true
where not exists (
    select
    from trax.signal d
    where d.job_id = $job_id
        and d.signal_id = $signal_id
)
on conflict on constraint signal_pkey do update
set sent_at = excluded.sent_at,
    signal_id = excluded.signal_id,
    payload = excluded.payload
where s.sent_at is null
returning s.position, s.awaited
