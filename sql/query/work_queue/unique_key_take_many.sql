-- Takes the unique keys that are free, each for the first job that wants it, in an order that two
-- transactions share; returns the jobs that have one now. Keys and jobs are parallel arrays.
insert into trax.unique_key (key, job_id)
select w.key, w.job_id
from unnest($keys, $job_ids) as w (key, job_id)
where not exists (
    select
    from trax.unique_key k
    where k.key = w.key
)
order by w.key collate "C", w.job_id
on conflict (key) do nothing
returning job_id
