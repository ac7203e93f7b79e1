-- Records jobs that cannot be read. Jobs and errors are parallel arrays.
insert into trax.unreadable_job as u (job_id, error, found_at)
select f.job_id, f.error, $now
from unnest($job_ids, $errors) as f (job_id, error)
on conflict (job_id) do update
set error = excluded.error
where u.error <> excluded.error
