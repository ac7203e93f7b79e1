-- Takes recorded events, from a place in the table on; returns for each whether it is at $last or
-- behind it.
delete from trax.need_event e
where e.ctid = any (array(
    select t.ctid
    from trax.need_event t
    where t.ctid >= $from
    limit $at_most
    for update skip locked
))
returning e.job_id, e.waits, e.ctid >= $last as is_last
