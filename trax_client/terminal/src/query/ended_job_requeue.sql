-- Queues a job again in place of its dead letter, with the columns of ended_job.sql.
select trax.requeue_dead_letter(id => $14::bigint)::text
