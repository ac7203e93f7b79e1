-- Removes the copies that transactions added side by side; one committed row of each lane stays.
delete from trax.lane l
where exists (
    select
    from trax.lane o
    where o.lane_id = l.lane_id
        and o.ctid < l.ctid
)
