-- Deletes a worker that reports its end. The caller holds the worker's advisory lock.
delete from trax.worker w
where w.name = $name
