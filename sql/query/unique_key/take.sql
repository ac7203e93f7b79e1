-- Takes a unique key for a job that was just queued; returns no row when another has it.
insert into trax.unique_key (key, job_id, alive_until)
values ($key, $job_id, $alive_until)
on conflict (key) do nothing
