-- Tells listeners that the workers of these jobs are asked to stop; without any, of some jobs.
select pg_notify('trax_cancel', $job_ids)
