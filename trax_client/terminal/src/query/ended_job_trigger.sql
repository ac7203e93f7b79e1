-- Queues a job of a manifest again, with the columns of ended_job.sql.
select trax.trigger(name => $1, input => $3::jsonb)::text
