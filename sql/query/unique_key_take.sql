-- Takes a unique key for the job whose id is the next of the queue's sequence. $1 key, $2 job
insert into trax.unique_key (key, job_id)
values ($1, $2)
on conflict (key) do nothing
