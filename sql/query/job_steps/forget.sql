-- Deletes what jobs remembered that have ended, and returns what undoes their steps, the newest
-- first. Signals that were not taken stay while the job's dead letter waits for a person. Waits for
-- no lock: a signal that another transaction is sending is deleted by the repair.
with steps as (
    delete from trax.step s
    where s.job_id = any ($job_ids)
    returning s.job_id, s.step_id, s.undo
), signals as (
    delete from trax.signal s
    where (s.job_id, s.name, s.position) in (
        select l.job_id, l.name, l.position
        from trax.signal l
        where l.job_id = any ($job_ids)
            and (
                l.sent_at is null
                or l.taken_at is not null
                or not exists (
                    select
                    from trax.dead_letter d
                    where d.job_id = l.job_id
                        and d.status = 'awaiting_intervention'
                    offset 0
                )
            )
        for update skip locked
    )
), needs as (
    delete from trax.need n
    where n.job_id = any ($job_ids)
)
select s.job_id, s.undo ->> 'task' as task, s.undo -> 'input' as input
from steps s
where s.undo is not null
order by s.job_id, s.step_id desc
