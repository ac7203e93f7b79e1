-- Resolves a dead letter. $1 id, $2 status, $3 note, $4 now, $5 the job that took its place
update trax.dead_letter d
set status = $2, resolution_note = $3, resolved_at = $4, requeued_job_id = $5
where d.id = $1
