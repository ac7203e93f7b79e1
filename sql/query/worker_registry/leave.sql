-- Forgets a worker that says it has ended. The caller holds the worker's advisory lock.
delete from trax.worker w
where w.name = $name
