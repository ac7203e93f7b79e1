-- Notifies listeners that the workers of these jobs are asked to stop; an empty list means any job.
select pg_notify('trax_cancel', $job_ids)
