-- The dead letter of a job on this shard. $1 job id.
select
    d.id as dead_letter_id,
    d.status as dead_letter_status,
    d.reason as dead_letter_reason,
    d.requeued_job_id,
    d.resolved_at
from trax.dead_letter d
where d.job_id = $1
