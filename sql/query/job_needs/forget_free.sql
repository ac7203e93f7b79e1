-- Deletes the needs of jobs, except those that another transaction has locked.
delete from trax.need n
where n.ctid = any (array(
    select o.ctid
    from trax.need o
    where o.job_id = any ($job_ids)
    for update skip locked
))
