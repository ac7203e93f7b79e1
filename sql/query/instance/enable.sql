-- Enables our triggers always.
select trax.enable_triggers()
