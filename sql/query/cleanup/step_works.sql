-- Notes that a step of the cleanup works again.
delete from trax.failed_step f
where f.step = $step
