-- Deletes the defaults of a task.
delete from trax.task t
where t.name = $name
