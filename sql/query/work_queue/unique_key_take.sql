-- Takes a unique key for a job that was just queued; no row when another has it. $1 key, $2 job
insert into trax.unique_key (key, job_id)
values ($1, $2)
on conflict (key) do nothing
