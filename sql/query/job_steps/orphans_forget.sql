-- Deletes signals of jobs that have ended, except those whose dead letter waits for a person; reads
-- a bounded number of rows after $after, and returns the last job read.
with looked as materialized (
    select s.job_id, s.name, s.position
    from trax.signal s
    where s.job_id > $after
    order by s.job_id, s.name, s.position
    limit $at_most
), gone as (
    delete from trax.signal s
    using looked l
    where s.job_id = l.job_id
        and s.name = l.name
        and s.position = l.position
        and not exists (select from trax.work_queue q where q.job_id = l.job_id)
        and not exists (select from trax.lease e where e.job_id = l.job_id)
        and not exists (
            select
            from trax.dead_letter d
            where d.job_id = l.job_id
                and d.status = 'awaiting_intervention'
        )
)
select max(l.job_id)
from looked l
