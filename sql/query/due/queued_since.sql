-- Returns whether the cycle has queued any manifest since $since.
select exists (
    select
    from trax.manifest_state s
    where s.last_queued_at >= $since
)
