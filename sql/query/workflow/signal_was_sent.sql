-- Returns whether a signal with this id was sent to a job.
select exists (
    select
    from trax.signal s
    where s.job_id = $job_id
        and s.signal_id = $signal_id
)
