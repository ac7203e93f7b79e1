-- Deletes the progress of attempts that have ended. $before is a time at which the cycle's snapshot
-- already contains the lease: a later report may be of a lease that the snapshot does not see.
delete from trax.progress p
where p.ctid = any (array(
    select o.ctid
    from trax.progress o
    where o.reported_at < $before
        and not exists (
            select
            from trax.lease l
            where l.job_id = o.job_id
                and l.token = o.token
        )
    for update skip locked
))
