-- Ends the need of an open batch for itself.
delete from trax.need n
where n.needed_job_id = $batch
    and n.job_id = $batch
