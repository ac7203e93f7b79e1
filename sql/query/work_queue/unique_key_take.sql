-- Takes a unique key for a job that was just queued; returns no row when another has it.
insert into trax.unique_key (key, job_id)
values ($key, $job_id)
on conflict (key) do nothing
