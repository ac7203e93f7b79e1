-- Resolves a dead letter, with the job that replaces it.
update trax.dead_letter d
set status = $status, resolution_note = $note, resolved_at = $now, requeued_job_id = $requeued_job_id
where d.id = $id
