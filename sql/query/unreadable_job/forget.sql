-- Deletes jobs that can be read, or are gone, unless another transaction has just recorded one.
delete from trax.unreadable_job u
where u.ctid = any (array(
    select o.ctid
    from trax.unreadable_job o
    where o.job_id = any ($job_ids)
    for update skip locked
))
