-- Returns whether a job waits for the end of another.
select exists (
    select
    from trax.need n
    where n.needed_job_id = $needed_job_id
        and n.job_id = $job_id
)
