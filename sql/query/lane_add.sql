-- Adds a lane unless a row of it can be seen. $1 lane, $2 group, $3 task
insert into trax.lane (lane_id, group_name, task)
select $1, $2, $3
where not exists (
    select
    from trax.lane l
    where l.lane_id = $1
)
