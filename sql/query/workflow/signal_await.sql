-- Adds the row that the sender of the next signal fills, or locks it. Returns no row when it was
-- filled meanwhile.
insert into trax.signal as s (job_id, name, position, awaited)
select $job_id, $name, coalesce(l.position + case when l.sent_at is null then 0 else 1 end, 1), true
from (select) one
left join lateral (
    select n.position, n.sent_at
    from trax.signal n
    where n.job_id = $job_id
        and n.name = $name
    order by n.position desc
    limit 1
) l on true
on conflict on constraint signal_pkey do update
set awaited = true
where s.sent_at is null
returning s.position
