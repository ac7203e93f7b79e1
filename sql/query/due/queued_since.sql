-- Whether the cycle has queued any manifest since $1.
select exists (
    select
    from trax.manifest_state s
    where s.last_queued_at >= $1
)
