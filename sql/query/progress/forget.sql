-- Deletes what attempts reported that are over. $before is a time before which the cycle's snapshot
-- surely knew of the lease: a report that comes while this runs is of a lease that the snapshot may
-- not see.
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
