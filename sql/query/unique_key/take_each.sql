-- Takes the free unique keys, each for the first job that wants it, in an order that concurrent
-- transactions share; returns the jobs that have one now. Keys, jobs and times are parallel arrays.
insert into trax.unique_key (key, job_id, alive_until)
select w.key, w.job_id, w.alive_until
from unnest($keys, $job_ids, $alive_until) as w (key, job_id, alive_until)
where not exists (
    select
    from trax.unique_key k
    where k.key = w.key
)
order by w.key collate "C", w.job_id
on conflict (key) do nothing
returning job_id
