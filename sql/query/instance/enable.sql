-- Sets the extension's triggers to always enabled.
select trax.enable_triggers()
