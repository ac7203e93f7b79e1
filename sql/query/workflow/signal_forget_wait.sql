-- Deletes the row that the sender of the next signal would fill.
delete from trax.signal s
where s.job_id = $job_id
    and s.name = $name
    and s.sent_at is null
