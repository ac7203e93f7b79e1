-- Queues one job for each element of $1, in order, and gives the ids in that order.
-- $1 inputs, $2 lane, $3 task, $4 group, $5 priority, $6 run at, $7 now, $8 retries, $9 timeout, $10 unique key,
-- $11 concurrency key, $12 trace, $13 manifest id, $14 manifest, $15 retry delay
insert into trax.work_queue (
    lane_id, queued_at, run_at, waits_for, manifest_id, max_retries, priority, task, group_name, manifest,
    timeout, retry_delay, unique_key, concurrency_key, input, trace
)
select
    $2, $7, $6, case when $6 > $7 then 'time' end, $13, $8, $5, $3, $4, $14,
    $9, $15, $10, $11, i.input, $12
from unnest($1) with ordinality as i (input, position)
order by i.position
returning job_id
