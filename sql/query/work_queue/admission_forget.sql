-- Deletes those of the oldest admitted jobs of a group that wait there no more.
delete from trax.admission a
where a.group_name = $group
    and a.number = any (array(
        select o.number
        from (
            select n.number, n.job_id
            from trax.admission n
            where n.group_name = $group
            order by n.number
            limit $at_most
        ) o
        where not exists (
            select
            from trax.work_queue q
            where q.job_id = o.job_id
                and q.group_name = $group
            offset 0
        )
    ))
