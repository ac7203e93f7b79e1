-- A step of the cleanup works again. $1 step
delete from trax.failed_step f
where f.step = $1
