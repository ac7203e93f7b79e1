-- Reads needs in the order of the needed job, from $after on, and returns each needed job, and
-- whether it has ended.
select
    n.needed_job_id as job_id,
    not exists (select from trax.work_queue q where q.job_id = n.needed_job_id offset 0)
        and not exists (select from trax.lease l where l.job_id = n.needed_job_id offset 0) as has_ended
from trax.need n
where n.needed_job_id > $after
order by n.needed_job_id
limit $at_most
