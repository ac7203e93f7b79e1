-- Cancels a batch of live jobs in id order. $1 task, $2 after this id, $3 up to this id, $4 limit.
select count(*) filter (where c.result in ('cancelled', 'requested')), count(*), max(c.job_id)
from (
    select j.job_id, trax.cancel(j.job_id) as result
    from (
        (
            select q.job_id
            from trax.work_queue q
            where q.job_id > $2
                and q.job_id <= $3
                and ($1::text is null or q.task = $1)
            order by q.job_id
            limit $4
        )
        union
        (
            select l.job_id
            from trax.lease l
            where l.job_id > $2
                and l.job_id <= $3
                and ($1::text is null or l.task = $1)
            order by l.job_id
            limit $4
        )
        order by job_id
        limit $4
    ) j
) c
