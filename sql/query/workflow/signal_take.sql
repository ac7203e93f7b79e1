-- Takes the first signal of a name that a job has not taken.
update trax.signal s
set taken_at = $now
where s.job_id = $job_id
    and s.name = $name
    and s.taken_at is null
    and s.sent_at is not null
    and s.position = (
        select n.position
        from trax.signal n
        where n.job_id = $job_id
            and n.name = $name
            and n.taken_at is null
            and n.sent_at is not null
        order by n.position
        limit 1
    )
returning s.payload
